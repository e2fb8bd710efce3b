"""Text that stays text, whatever is in it: in HTML, in Markdown and in the names of anchors."""

from __future__ import annotations

import re
from html import escape

#: What Markdown would read as more than itself, anywhere in a line; an underscore inside a word
#: and a lone ampersand are nothing to it.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
#: The same where a paragraph begins: a heading, an entry of a list, a rule.
_FIRST = re.compile(r"^(?:#{1,6}|[-+]|\d+[.)])(?=\s|$)|^-{3}")


def in_html(text: object) -> str:
    """Escape text for HTML, in an element or in an attribute.

    Example:
        >>> in_html("<b> & 'c'")
        '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return escape(str(text))


def in_markdown(text: object) -> str:
    r"""Escape text for a part of a line of Markdown.

    Example:
        >>> print(in_markdown("a|b *c* reg_distance"))
        a\|b \*c\* reg_distance
    """
    line = " ".join(str(text).split())
    return _SPECIAL.sub(lambda found: "\\" + found[0], line)


def paragraph(text: object) -> str:
    r"""Escape text for a paragraph of Markdown, in one line.

    Example:
        >>> print(paragraph("# no heading"), paragraph("1. no list"), paragraph("0.5 it is"))
        \# no heading 1\. no list 0.5 it is
    """
    line = in_markdown(text)
    return _FIRST.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", line)


def anchor(text: str) -> str:
    """Make the name of an anchor of a heading.

    Example:
        >>> anchor("Budget: trials & minutes")
        'budget-trials-minutes'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"
