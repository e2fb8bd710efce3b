"""A service that answers, and learns of new events: one model folder, HTTP and JSON.

Names are imported when they are first used: they need the extra `serve`.
"""

from __future__ import annotations
