"""When clients ask again, how long they wait, and what they make of an answer."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import httpx

from transcf.errors import ParameterError, ServiceError, shown
from transcf.serving.calls import Call

#: What came of an attempt.
Outcome: TypeAlias = httpx.Response | httpx.TransportError

#: What the service, or what stands before it, says when it is worth asking again.
_LATER = (429, 502, 503, 504)
#: Seconds before the first repetition, and the most between two, whatever the service asks for.
_FIRST, _LONGEST = 0.1, 30.0


class RetryPolicy:
    """What both clients share: the address, the token, and when to ask again.

    Args:
        url: Where the service is.
        token: What it asks for, or None.
        timeout: Seconds for each attempt.
        retries: How often to ask again.
    """

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        """Check them."""
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ParameterError(
                f"url={shown(url)} is not allowed; it must start with http:// or https://."
            )
        if not timeout > 0:
            raise ParameterError(f"timeout={shown(timeout)} is not allowed; it must be above 0.")
        if retries < 0:
            raise ParameterError(f"retries={shown(retries)} is not allowed; it must be at least 0.")
        self.url, self.retries = url.rstrip("/"), retries
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.options: dict[str, Any] = {"headers": headers, "timeout": timeout}

    def request(self, call: Call[Any]) -> dict[str, Any]:
        """Return what httpx is to send."""
        asked = {"method": call.method, "url": f"{self.url}/v1/{call.path}", "params": call.params}
        return asked if call.body is None else asked | {"json": call.body}

    def pause(self, attempt: int, outcome: Outcome) -> float | None:
        """Return the seconds until the next attempt; None if this one counts, whatever it is.

        Args:
            attempt: How many there were before.
            outcome: What came of this one.
        """
        answer = outcome if isinstance(outcome, httpx.Response) else None
        if attempt >= self.retries or (answer is not None and answer.status_code not in _LATER):
            return None
        wished = "" if answer is None else answer.headers.get("retry-after", "")
        if wished.isdigit():
            return min(float(wished), _LONGEST)
        apart = random.uniform(0.5, 1.0)  # clients that were refused together come back one by one
        return float(min(_FIRST * 2**attempt, _LONGEST) * apart)

    def read(self, outcome: Outcome) -> Any:
        """Return the JSON of an answer, or raise what the service says."""
        if not isinstance(outcome, httpx.Response):
            raise self._unreached(outcome) from outcome
        try:
            content = outcome.json()
        except ValueError:
            content = None
        if outcome.is_success and content is not None:
            return content
        said = content.get("error") if isinstance(content, dict) else None
        said = said if isinstance(said, dict) else {}
        usual = f"The service at {self.url} answered {outcome.status_code} without a reason."
        code, status = str(said.get("code", "")), outcome.status_code
        raise ServiceError(str(said.get("message", usual)), code=code, status=status)

    def _unreached(self, error: httpx.TransportError) -> ServiceError:
        late = isinstance(error, httpx.TimeoutException)
        what = "did not answer in time" if late else f"cannot be reached ({type(error).__name__})"
        tries = f" in {self.retries + 1} attempts" if self.retries else ""
        return ServiceError(f"The service at {self.url} {what}{tries}: is it running?", code="away")
