# SPDX-License-Identifier: Apache-2.0
"""Rewrites the links of the installed documents: a link to a public header leads to the header's page in the reference, and a link to a
file that only the source has becomes the path of that file. Argument: the folder in which README.md is installed."""
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(SOURCE / "lab" / "pages"))
LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\(([^()\s]+)\)")
PROTOCOL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.I)


def rewrite(root, page):
    from reference import page_of, public_headers

    def other(match):
        text, target = match.groups()
        path, _, anchor = target.partition("#")
        if PROTOCOL.match(target) or not path or (page.parent / path).exists():
            return match[0]
        name = os.path.relpath(page.parent / path, root)
        if name in public_headers():
            return f"[{text}]({os.path.relpath(root / 'reference' / page_of(name), page.parent)})"
        if text.strip("`") in (target, path, name, os.path.basename(path)):
            return f"`{name}` in the source"
        return f"{text} (`{name}` in the source)"

    return LINK.sub(other, page.read_text(encoding="utf-8"))


def main():
    root = pathlib.Path(sys.argv[1])
    for page in (*root.glob("*.md"), *root.glob("docs/**/*.md")):
        page.write_text(rewrite(root, page), encoding="utf-8")


main()
