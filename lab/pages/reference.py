# SPDX-License-Identifier: Apache-2.0
"""Makes reference pages from the comments of the public headers, so that a page says what the header says.

usage: reference.py --write FOLDER     writes the pages; `meson compile reference` does it in the build folder
       reference.py --check [LIBRARY]  says what has no comment and, by nm, where the exports of the library differ from lockstep.h
       reference.py --self-test

A comment belongs to the declaration that follows it without an empty line, or that stands before it on its line. One that ends with
a colon is for all declarations up to the next empty line. A comment with an empty line behind it is text of the page.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SELF = "lab/pages/reference.py"
# Fields that mean the same everywhere.
USUAL = {"struct_size": "the size of the struct in bytes", "reserved": "zero"}


class Wrong(Exception):
    pass


def keep(made, script):
    """Writes files that are made of the sources, or with --check says which are not what the sources say; the exit code."""
    wrong = 0
    for path, text in made.items():
        place = os.path.join(ROOT, path)
        if sys.argv[1:] != ["--check"]:
            with open(place, "w", encoding="utf-8") as file:
                file.write(text)
        elif not os.path.exists(place) or open(place, encoding="utf-8").read() != text:
            print(f"{path} is not what the sources say; run {script}")
            wrong = 1
    return wrong


class Declaration:
    def __init__(self, kind, name, code, comment, line):
        self.kind, self.name, self.code, self.comment, self.line = kind, name, code, comment, line
        self.shared = False  # the comment is that of the declaration before
        self.within = False  # on one line with its enumeration, whose comment is for all values
        self.names = [name]
        self.parts = []  # fields of a struct, values of an enumeration


# ---- Reading ----

def without_comment(line):
    """The code of a line, and the comment behind it."""
    quoted = False
    for at, letter in enumerate(line):
        if letter == '"' and line[at - 1:at] != "\\":
            quoted = not quoted
        if not quoted and line.startswith("//", at):
            return line[:at].rstrip(), line[at + 2:].strip()
    return line.rstrip(), None


def c_lines(text):
    """The lines that a C compiler sees, numbered; includes, guards and braces of extern "C" are empty."""
    branches, number = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word.startswith(("#ifdef", "#ifndef", "#if ")):
            branches.append("__cplusplus" not in word)
        elif word.startswith("#else"):
            branches[-1] = not branches[-1]
        elif word.startswith("#endif"):
            branches.pop()
        elif word.startswith("#include") or re.match(r"#define \w+_H$", word) or not all(branches):
            pass
        elif re.match(r"// clang-format (on|off)$", word):
            continue
        else:
            yield number, line
            continue
        yield number, ""


def names_of(code):
    """The names that a field or a variable declares."""
    pointer = re.search(r"\(\*(\w+)\)\s*\(", code)
    if pointer:
        return [pointer[1]]
    plain = re.sub(r"\[[^\]]*\]", "", code.rstrip(";"))
    return [re.search(r"(\w+)\s*(?:=.*)?$", part)[1] for part in plain.split(",")]


class Reader:
    """What is declared in these lines, and the text between."""

    def __init__(self, path, lines, inside=None):
        self.path, self.lines, self.inside = path, list(lines), inside
        self.items = []  # Declaration, ("section", title) or ("text", lines)
        self.comment, self.block = [], []  # just above; in front of the block of declarations
        self.first = None  # of the block
        self.at = 0

    def fail(self, number, why):
        raise Wrong(f"{self.path}:{number}: {why}")

    def end_block(self):
        if self.comment:
            self.items.append(("text", self.comment))
        self.comment, self.block, self.first = [], [], None

    def read(self):
        while self.at < len(self.lines):
            number, line = self.lines[self.at]
            word = line.strip()
            section = re.match(r"// -{4} (.*) -{4}$", word)
            if not word:
                self.end_block()
            elif section:
                self.end_block()
                self.items.append(("section", section[1]))
            elif word.startswith("//"):
                self.comment.append(re.sub(r"^// ?", "", word))
            else:
                self.declaration(number)
                continue
            self.at += 1
        self.end_block()
        return self.items

    def take(self, number):
        """The lines of one declaration: (lines without comments, the comment behind, lines as they are)."""
        code, raw, behind, depth = [], [], None, 0
        while self.at < len(self.lines):
            _, line = self.lines[self.at]
            self.at += 1
            text, comment = without_comment(line)
            raw.append(line)
            if text.lstrip().startswith("#define") or code and code[0].lstrip().startswith("#define"):
                code.append(text.rstrip("\\").rstrip())
                behind = comment or behind
                if not line.rstrip().endswith("\\"):
                    return code, behind, raw
                continue
            code.append(text)
            depth += text.count("{") + text.count("(") - text.count("}") - text.count(")")
            behind = comment if text else behind
            ends = text.endswith(";") or text.endswith("}") or self.inside == "enum" and text.endswith(",")
            last = self.inside == "enum" and self.at == len(self.lines)
            if depth == 0 and (ends or last):
                return code, behind, raw
            if depth == 0 and self.inside == "struct" and not text:
                break
        return self.fail(number, f"this is no declaration that {SELF} knows: {' '.join(code)}")

    def declaration(self, number):
        code, behind, raw = self.take(number)
        text = " ".join(part.strip() for part in code)
        made = self.enumerators(text, number) if self.inside == "enum" else [self.one(text, code, raw, number)]
        if self.comment:
            self.block = self.comment if self.comment[-1].endswith(":") else []
        for item in made:
            own = [behind] if behind else []
            item.comment = self.comment + ([""] if self.comment and own else []) + own
            if not item.comment and self.block:
                item.comment, item.shared = self.block, True
            self.items.append(item)
        self.comment = []

    def enumerators(self, text, number):
        return [Declaration("value", part.split()[0], part.strip(), [], number) for part in text.split(",") if part.strip()]

    def one(self, text, code, raw, number):
        body = re.match(r"(struct|enum|union)\b ?(\w*) ?\{(.*)\} ?(\w*);$", text)
        macro = re.match(r"#define (\w+)(\(.*?\))? ?(.*)$", text)
        if macro:
            return Declaration("macro", macro[1], text if len(text) <= 100 else " \\\n".join(code), [], number)
        if body:
            kind, name = body[1], body[2]
            item = Declaration(kind, f"{kind} {name}".strip() if name else "", f"{kind} {name}".strip(), [], number)
            inner = [(number + at, line) for at, line in enumerate(raw)]
            if len(inner) == 1:
                inner = [(number, body[3])]
            else:
                inner = inner[1:-1]
            item.parts = Reader(self.path, inner, "enum" if kind == "enum" else "struct").read()
            for part in item.parts if len(raw) == 1 else ():
                part.within = True
            if not name and not body[4]:  # an enumeration of constants
                item.name = item.parts[0].name
            if body[4]:  # a field with a struct of its own
                item.kind, item.name = "field", body[4]
            return item
        if self.inside == "struct":
            item = Declaration("field", None, text.rstrip(";"), [], number)
            item.names = names_of(text)
            item.name = item.names[0]
            return item
        opaque = re.match(r"(struct \w+);$", text)
        if opaque:
            return Declaration("struct", opaque[1], text, [], number)
        typedef = re.match(r"typedef .*\(\*(\w+)\)\(.*\);$", text)
        if typedef:
            return Declaration("type", typedef[1], text, [], number)
        function = re.match(r"(?:.*?[ *])(\w+)\((?!\()", re.sub(r"__attribute__\(\(.*?\)\)\)? ?", "", text))
        if function:
            signature = re.sub(r" ?\{.*$", ";", re.sub(r"__attribute__\(\(format\(.*?\)\)\) ?", "", text))
            return Declaration("function", function[1], signature, [], number)
        return self.fail(number, f"this is no declaration that {SELF} knows: {text}")


def read_header(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = list(c_lines(file.read()))
    if lines and "SPDX" in lines[0][1]:
        lines = lines[1:]
    items = merge_sized(Reader(path, lines).read())
    return items


def merge_sized(items):
    """ls_fit_sized and the inline function in front of it are one call."""
    merged = []
    for item in items:
        before = merged[-1] if merged else None
        if (isinstance(item, Declaration) and isinstance(before, Declaration) and before.name == item.name + "_sized"
                and (item.shared or not item.comment)):
            merged.pop()
            item.comment, item.shared = before.comment, before.shared
            item.code = f"{item.code}\n{before.code}"
            item.names = [item.name, before.name]
        merged.append(item)
    return merged


def public_headers():
    plugin = os.path.join("core", "plugin")
    return ["lockstep.h", "layers.h"] + sorted(os.path.join(plugin, name) for name in os.listdir(os.path.join(ROOT, plugin))
                                               if name.endswith(".h"))


# ---- What lacks a comment ----

def without_a_comment(path, items, inside=""):
    for item in items:
        if not isinstance(item, Declaration):
            continue
        usual = item.within or inside and item.names[0] in USUAL
        if not item.comment and not usual and not (item.kind == "enum" and item.parts and all_commented(item)):
            yield f"{path}:{item.line}: {inside}{item.name} has no comment"
        yield from without_a_comment(path, item.parts, f"{item.name}: ")


def all_commented(item):
    return all(part.comment for part in item.parts if isinstance(part, Declaration))


# ---- Writing ----

def page_of(path):
    return re.sub(r"[/.]", "-", re.sub(r"^core/|\.h$", "", path)) + ".md"


def anchor_of(name):
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


class Page:
    def __init__(self, path, places):
        self.path, self.places, self.out = path, places, []

    def link(self, text, here):
        """Names that have an entry lead to it, outside of code."""
        def replace(found):
            name = found[0]
            place = self.places.get("struct " + name) or self.places.get("enum " + name) or self.places.get(name)
            if not place or name == here:
                return name
            page, anchor = place
            return f"[{name}]({'' if page == page_of(self.path) else page}#{anchor})"
        parts = re.split(r"(`[^`]*`)", text)
        return "".join(part if at % 2 else re.sub(r"\b(?:ls_\w+|LS_\w+)\b(?!\()", replace, escape(part)) for at, part in enumerate(parts))

    def text(self, lines, here=None):
        """Lines that are indented keep their columns, unless they go on with a point of a list."""
        points, shift = False, None
        for line in lines:
            points = line.startswith("- ") or points and line.startswith("  ")
            columns = line.startswith("  ") and not points
            if columns != (shift is not None) and self.out[-1] and line:
                self.out.append("")
            if line:
                shift = None if not columns else "" if line.startswith("    ") and not shift else "  "
            self.out.append(shift + line if columns else self.link(line, here))
        self.out.append("")

    def part(self, item, owner):
        if not isinstance(item, Declaration):
            self.out += ["", " ".join(self.link(line, owner) for line in item[1]).strip(), ""]
            return
        words = " ".join(line.strip() for line in item.comment if line) or USUAL.get(item.names[0], "")
        group = words.endswith(":")
        if group and not item.shared:
            self.out += ["", self.link(words, owner), ""]
        self.out.append(f"- `{item.code}`" + ("" if group or not words else f": {self.link(words, owner)}"))
        for inner in item.parts:
            self.out.append(f"  - `{inner.code}`: " + self.link(" ".join(inner.comment), owner))

    def declaration(self, item):
        self.out += [f"### {item.name}", ""]
        if item.kind not in ("struct", "enum", "union") or not item.parts:
            self.out += ["```c", wrap(item.code), "```", ""]
        bare = item.name.split()[-1]
        if item.shared:
            self.out += ["As above.", ""]
        elif item.comment:
            self.text([sentence(item.comment[0])] if len(item.comment) == 1 else item.comment, bare)
        for part in item.parts:
            self.part(part, bare)
        if item.parts:
            self.out.append("")

    def write(self, items):
        include = f"lockstep/{self.path}" if self.path.startswith("core") else self.path
        self.out = [f"# {self.path}", "", f"<!-- Made from {self.path} by {SELF}; change the header, not this page. -->", "",
                    f'`#include "{include.removeprefix("lockstep/")}"`', ""]
        for item in items:
            if isinstance(item, Declaration):
                self.declaration(item)
            elif item[0] == "section":
                self.out += [f"## {item[1]}", ""]
            else:
                self.text(item[1])
        return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in self.out)).rstrip() + "\n"


def sentence(text):
    """What stands behind a declaration, as a sentence."""
    begin = text[0].upper() if re.match(r"[a-z]+\b(?!_)", text) else text[0]
    return begin + text[1:] + ("" if text.endswith((".", ":", '"', ")")) else ".")


def escape(text):
    return text.replace("<", "&lt;").replace("|", "\\|")


def wrap(code):
    """A signature as in the header: at most 100 columns."""
    lines = []
    for line in code.splitlines():
        if len(line) <= 100 or "(" not in line:
            lines.append(line)
            continue
        indent, words = " " * (line.index("(") + 1), re.split(r"(?<=,) ", line)
        current = ""
        for word in words:
            if current and len(current) + 1 + len(word) > 100:
                lines.append(current)
                current = (indent if len(indent) < 60 else "    ") + word
            else:
                current = f"{current} {word}" if current else word
        lines.append(current)
    return "\n".join(lines)


def summary_of(items):
    """The first sentence of the header."""
    lines = next((item[1] for item in items if not isinstance(item, Declaration) and item[0] == "text"), [""])
    paragraph = " ".join(lines).split("  ")[0]
    return re.split(r"(?<=[.:;])\s", paragraph)[0].rstrip(".:;")


def index(headers):
    lines = ["# Reference", "", f"<!-- Made by {SELF}; change the headers, not this page. -->", "",
             "One page for each public header, made from its comments.", "", "| header | |", "|---|---|"]
    lines += [f"| [{path}]({page_of(path)}) | {escape(summary_of(items))} |" for path, items in headers.items()]
    places = {}
    for path, items in headers.items():
        for item in items:
            if isinstance(item, Declaration):
                places[item.name] = f"[{item.name}]({page_of(path)}#{anchor_of(item.name)})"
    lines += ["", "## Names", ""]
    lines += [f"- {places[name]}" for name in sorted(places, key=lambda name: name.split()[-1].lower())]
    return "\n".join(lines) + "\n"


def pages(paths):
    """{file name: text}, and what has no comment."""
    headers = {path: read_header(path) for path in paths}
    places, lacking = {}, []
    for path, items in headers.items():
        lacking += without_a_comment(path, items)
        for item in items:
            for name in item.names if isinstance(item, Declaration) else ():
                places[name] = (page_of(path), anchor_of(item.name))
            for value in item.parts if isinstance(item, Declaration) and item.kind == "enum" else ():
                if isinstance(value, Declaration):
                    places[value.name] = (page_of(path), anchor_of(item.name))
    made = {page_of(path): Page(path, places).write(items) for path, items in headers.items()}
    made["README.md"] = index(headers)
    return made, lacking


def other_exports(library):
    """Calls of lockstep.h that the library lacks, and what it exports beside them."""
    lines = subprocess.run(["nm", "--dynamic", "--defined-only", "-P", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    exported = {name for name in (line.split()[0] for line in lines.splitlines()) if not name.startswith("__")}  # __: of sanitizers
    declared = set()
    for item in read_header("lockstep.h"):
        if isinstance(item, Declaration) and item.kind == "function":
            inline = item.code.startswith("LS_INLINE_CALL")
            declared |= set(item.names[1:] if inline else item.names)
    for name in sorted(exported ^ declared):
        yield f"{name} is " + ("exported, but not in lockstep.h" if name in exported else f"in lockstep.h, but not exported by {library}")


def check(library=None):
    made, lacking = pages(public_headers())
    wrong = lacking + (list(other_exports(library)) if library else [])
    print("\n".join(wrong) or f"everything in {len(made) - 1} headers has a comment")
    return 1 if wrong else 0


def write(folder):
    os.makedirs(folder, exist_ok=True)
    made, lacking = pages(public_headers())
    for name, text in made.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    print("\n".join(lacking) or f"{folder}: {len(made)} pages")
    return 1 if lacking else 0


# ---- Does it see what is planted? ----

PLANTED = '''// SPDX-License-Identifier: Apache-2.0
// A header. It has everything.
//
// - a point that
//   goes on
// Its life:
//   open     first
//     then more
#ifndef A_H
#define A_H
#ifdef __cplusplus
extern "C" {
#endif

// ---- Things ----

#define LS_A 1 // one
#define LS_B(x) \\
    (x)

// Text of the page.

struct ls_opaque; // the host's
struct ls_things {
    uint32_t struct_size;
    uint32_t first; // of them
    int64_t one, two; // a pair
    double bare;
    // Called with things:
    int32_t (*call)(struct ls_opaque *opaque,
                    uint32_t count);
    void (*again)(void);

    void (*alone)(void);
};

enum ls_kinds {
    LS_NOTHING = 0,
    LS_SOMETHING = 1, // anything
};

// Does it. See ls_things.
//
//     ls_do(1);
LS_CALL ls_do_sized(int a, size_t bytes);
LS_INLINE_CALL ls_do(int a)
{
    return ls_do_sized(a, sizeof(a));
}
LS_API void ls_undo(void); // takes it back

LS_API void ls_silent(void);

#ifdef __cplusplus
}
#endif
#endif
'''
EXPECTED_LACKING = ["LS_B", "struct ls_things", "struct ls_things: bare", "struct ls_things: alone", "enum ls_kinds", "enum ls_kinds: LS_NOTHING", "ls_silent"]


def self_test():
    import tempfile
    global ROOT
    with tempfile.TemporaryDirectory() as ROOT:
        with open(os.path.join(ROOT, "a.h"), "w", encoding="utf-8") as file:
            file.write(PLANTED)
        made, lacking = pages(["a.h"])
        page = made["a.md"]
        names = [line.split(": ", 1)[1].removesuffix(" has no comment") for line in lacking]
        assert names == EXPECTED_LACKING, names
        for text in ("## Things", "### LS_A", "### struct ls_things", "- `int64_t one, two`: a pair",
                     "- `int32_t (*call)(struct ls_opaque *opaque, uint32_t count)`\n- `void (*again)(void)`\n", "\n\nCalled with things:\n\n",
                     "- `uint32_t struct_size`: the size", "### ls_do\n\n```c\nLS_INLINE_CALL ls_do(int a);\nLS_CALL ls_do_sized(int a, size_t bytes);",
                     "See [ls_things](#struct-ls_things).\n\n    ls_do(1);", "Takes it back.", "Text of the page.", "- a point that\n  goes on\nIts life:\n\n    open     first\n      then more\n"):
            assert text in page, f"{text}\n{page}"
        assert "extern" not in page and "A_H" not in page and "sizeof" not in page, page
        with open(os.path.join(ROOT, "a.h"), "a", encoding="utf-8") as file:
            file.write("what is this\n")
        try:
            pages(["a.h"])
            raise AssertionError("nonsense was read")
        except Wrong as wrong:
            assert "a.h:" in str(wrong), wrong
    print("planted mistakes were found")
    return 0


if __name__ == "__main__":
    try:
        sys.exit({"--check": check, "--self-test": self_test, "--write": write}[sys.argv[1]](*sys.argv[2:]))
    except Wrong as wrong:
        sys.exit(str(wrong))
