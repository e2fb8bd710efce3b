"""The service with two more routes, for comparison: a constant, and implicit's own ranking.

Run by benchmarks/serving.py: python benchmarks/_serving_peer.py MODEL PORT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Request
from implicit.cpu.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix
from starlette.responses import Response

from transcf.serving.app import create_app
from transcf.serving.server import server_config
from transcf.serving.service import Service
from transcf.serving.settings import ServiceSettings


def peer_of(service: Service) -> tuple[Any, Any] | None:
    """Implicit with the same vectors, and what everybody has seen; it ranks by inner products."""
    scorer = service.versions.current.scorer
    form = scorer.linear_form()
    if form is None:
        return None
    peer = AlternatingLeastSquares(factors=form.item_vectors.shape[1], num_threads=1)
    peer.user_factors, peer.item_factors = form.user_vectors, form.item_vectors
    return peer, csr_matrix(scorer.known.seen.to_scipy())


def main(model: str, port: int) -> None:
    settings = ServiceSettings(Path(model), port=port)
    service = Service(settings)
    app = create_app(service)
    served = service.versions.current
    pair = peer_of(service)
    users, items = served.users, served.items.series.to_list()
    entry = '{"item":"i000001","title":null,"categories":[],"score":-0.1234567,"rank":1}'
    body = f'{{"version":1,"user":"u00001","source":"model","items":[{",".join([entry] * 10)}]}}'

    @app.get("/constant/{user:path}")
    async def constant(request: Request, user: str, k: int = 10) -> Response:
        return Response(body.encode(), media_type="application/json")

    @app.get("/peer/{user:path}")
    def implicit(user: str, k: int = 10) -> dict[str, Any]:
        assert pair is not None, "nobody asks for it then"
        (peer, seen), row = pair, int(users.rows([user])[0])
        found, scores = peer.recommend(row, seen[[row]], N=k)
        pairs = zip(found.tolist(), scores.tolist(), strict=True)
        return {"user": user, "items": [{"item": items[i], "score": s} for i, s in pairs]}

    config = server_config(app, settings)
    config.port = port
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
