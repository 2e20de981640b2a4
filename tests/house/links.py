#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what the documents point to is there: files, headings, pictures; and that the pictures are well made.

usage: links.py ROOT
       links.py --self-test

Documents: README.md, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md, docs/**/*.md. Every link that names no protocol must lead to a file below
ROOT, every anchor to a heading of that file (as GitHub and GitLab name them). A picture (docs/pictures/*.svg) must be
well-formed XML, have a title, a description, text that is text, rules for dark pages, and nothing that runs or is
fetched; and some document must show it, and each docs/pictures/*.png. A page (docs/NAME.md) that a source file names, in a comment or a message, must be there.
"""
import os
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"
LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", re.M)
PAGE = re.compile(r"\bdocs/[\w-]+\.md\b")
SOURCES = (".c", ".h", ".cu", ".cuh", ".py", ".sh", ".build")
PROTOCOL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.I)


def prose(text):
    """Without code, in which nothing is a link: fenced and indented blocks, and what stands between backticks."""
    text = re.sub(r"^(```+|~~~+).*?^\1[ \t]*$", "", text, flags=re.M | re.S)
    text = re.sub(r"(?m)(?<=\n\n)(?: {4}.*\n?)+", "", text)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "code", text)


def anchors(text):
    """Those of the headings; the second one of a name ends in -1."""
    text = re.sub(r"^(```+|~~~+).*?^\1[ \t]*$", "", text, flags=re.M | re.S)
    seen, names = {}, set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def check_link(root, document, target):
    """Why the link is broken, or None."""
    path, _, anchor = target.partition("#")
    there = (document.parent / path).resolve() if path else document
    if not there.is_relative_to(root):
        return "leads out of the tree"
    if not there.exists():
        return "is not there"
    if anchor and there.suffix == ".md" and anchor not in anchors(there.read_text(encoding="utf-8")):
        return f"has no heading #{anchor}"
    return None


def check_picture(path):
    try:
        root = xml.parse(path).getroot()
    except xml.ParseError as error:
        return [f"is not well-formed: {error}"]
    text = path.read_text(encoding="utf-8")
    wrong = []
    if root.tag != SVG + "svg":
        wrong.append("is no picture: its root is not svg")
    wrong += [f"has no {name}" for name in ("title", "desc", "text") if root.find(f".//{SVG}{name}") is None]
    if "viewBox" not in root.attrib:
        wrong.append("has no viewBox, so it does not scale")
    if "prefers-color-scheme:dark" not in text.replace(" ", ""):
        wrong.append("has no rules for dark pages")
    for element in root.iter():
        name = str(element.tag).replace(SVG, "")
        if name in ("script", "image", "foreignObject", "use"):
            wrong.append(f"has an element {name}")
        wrong += [f"has an attribute {key}" for key in element.attrib if key.startswith("on") or key.endswith("href")]
    if re.search(r"@import|url\(", text):
        wrong.append("fetches something")
    return wrong


def documents_of(root):
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
    return [path for path in (*(root / name for name in names), *sorted(root.glob("docs/**/*.md"))) if path.exists()]


def check_sources(root):
    """Pages that source files name and that are not there. The page of this file's own self-test is not one of them."""
    wrong = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "build"))]
        for path in (pathlib.Path(folder) / name for name in names if name.endswith(SOURCES)):
            if path.name == "links.py":
                continue
            for page in set(PAGE.findall(path.read_text(encoding="utf-8", errors="replace"))):
                if not (root / page).exists():
                    wrong.append(f"{path.relative_to(root).as_posix()}: {page}: is not there")
    return wrong


def check(root):
    """What is wrong, and how many links and pictures were looked at."""
    wrong, links, shown = [], 0, set()
    for document in documents_of(root):
        name, text = document.relative_to(root).as_posix(), document.read_text(encoding="utf-8")
        text = prose(text)
        for target in [match[1] for match in LINK.findall(text)] + REFERENCE.findall(text):
            if PROTOCOL.match(target):
                continue
            links += 1
            why = check_link(root, document, target)
            if why:
                wrong.append(f"{name}: {target}: {why}")
            shown.add((document.parent / target.partition("#")[0]).resolve())
    wrong += check_sources(root)
    pictures = sorted(root.glob("docs/pictures/*.svg"))
    for path in pictures:
        name = path.relative_to(root).as_posix()
        wrong += [f"{name}: {why}" for why in check_picture(path)]
        if path.resolve() not in shown:
            wrong.append(f"{name}: no document shows it")
    for path in sorted(root.glob("docs/pictures/*.png")):
        if path.resolve() not in shown:
            wrong.append(f"{path.relative_to(root).as_posix()}: no document shows it")
    return wrong, links, len(pictures)


GOOD = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><title>t</title><desc>d</desc>'
        "<style>@media(prefers-color-scheme:dark){}</style><text>x</text></svg>")
PLANTED = {
    "a broken file": ("[x](nowhere.md)", "is not there"),
    "a broken anchor": ("[x](docs/page.md#nowhere)", "has no heading #nowhere"),
    "a broken anchor of its own": ("# A\n\n[x](#b)", "has no heading #b"),
    "a way out": ("[x](../secret)", "leads out of the tree"),
    "a picture that is not there": ("![x](docs/pictures/none.svg)", "is not there"),
    "a reference": ("[x][1]\n\n[1]: nowhere.md", "is not there"),
}
PICTURES = {
    "broken XML": (GOOD.replace("</svg>", ""), "is not well-formed"),
    "text as paths": (GOOD.replace("<text>x</text>", ""), "has no text"),
    "light only": (GOOD.replace("dark", "light"), "has no rules for dark pages"),
    "a script": (GOOD.replace("<text>", "<script/><text>"), "has an element script"),
    "a fetch": (GOOD.replace("{}", "{a{fill:url(http://x)}}"), "fetches something"),
}


def self_test():
    failed = 0

    def expect(what, readme, picture, says, source="", png=None):
        nonlocal failed
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve() / "tree"
            (root / "docs" / "pictures").mkdir(parents=True)
            (root / "README.md").write_text(readme + "\n\n![p](docs/pictures/p.svg)\n")
            (root / "docs" / "page.md").write_text("# Page\n\n## A `b`, c\n\n## A `b`, c\n\n```\n# no heading\n[x](none)\n```\n")
            (root / "docs" / "pictures" / "p.svg").write_text(picture)
            if png:
                (root / "docs" / "pictures" / png).write_bytes(b"PNG")
            (root / "a.h").write_text(source)
            wrong = check(root)[0]
        right = len(wrong) == 1 and says in wrong[0] if says else not wrong
        failed += not right
        if not right:
            print(f"{what}: found {wrong}, expected {says or 'nothing'}")
    expect("what is right", "[a](docs/page.md#a-b-c) [b](docs/page.md#a-b-c-1) [c](https://x/y) `[d](none)`", GOOD, None)
    expect("a link in a fence", "[x](docs/page.md#no-heading)", GOOD, "has no heading")
    for what, (readme, says) in PLANTED.items():
        expect(what, readme, GOOD, says)
    for what, (picture, says) in PICTURES.items():
        expect(what, "", picture, says)
    expect("a page that a header names", "", GOOD, None, "// docs/page.md says more.")
    expect("a page that is not there", "", GOOD, "a.h: docs/none.md: is not there", "// docs/none.md says more.")
    expect("a PNG that nobody shows", "", GOOD, "no document shows it", png="q.png")
    expect("a PNG that is shown", "![q](docs/pictures/q.png)", GOOD, None, png="q.png")
    print(f"{6 + len(PLANTED) + len(PICTURES)} planted, {failed} wrong")
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        sys.exit(1 if self_test() else 0)
    found, link_count, picture_count = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(found) or f"{link_count} links and {picture_count} pictures are right")
    sys.exit(1 if found or not link_count or not picture_count else 0)
