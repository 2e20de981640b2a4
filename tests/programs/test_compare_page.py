#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `lockstep compare --html`: read as XML and HTML, and looked at in a real browser (the Debian package
chromium), at 400 and 1,400 pixels, light and dark."""
import html.parser
import math
import os
import struct
import subprocess
import sys
import unittest
import xml.etree.ElementTree as xml

from browser import Browser
from support import LOCKSTEP, ProgramTest, main, write_json

MAKE_PAGE = os.environ["LOCKSTEP_MAKE_PAGE"]
PICTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "pictures")
WIDTHS = (400, 1400)
THEMES = ("light", "dark")
SECTIONS = ["speed", "steps", "curves", "deviation", "scaling", "buckets", "table", "method"]
HOSTILE = "<script>document.title='x';console.error(1)</script>&\"'</title></style>-->]]>\u202e\U0001f980" + "long" * 40


def run(strategy, replicas=2, speed=7150.0, synchronous=True, buckets=((5160, "direct"), (896000, "ring"))):
    step = 128 / speed
    curve = [{"step": i, "examples": 128 * i, "seconds": i * step, "loss": 0.35 + 2 * math.exp(-i / 70),
              "accuracy": 0.8 - 0.7 * math.exp(-i / 70), "val_loss": None if i % 50 else 0.4,
              "val_accuracy": None if i % 50 else 0.88 - 0.3 * math.exp(-i / 60)} for i in range(2, 301, 2)]
    return {"strategy": strategy, "replicas": replicas, "threads": 1, "global_batch": 128, "status": "done", "reason": None,
            "synchronous": synchronous, "examples_per_second": speed, "examples_per_second_low": 0.98 * speed,
            "examples_per_second_high": 1.01 * speed, "round_examples_per_second": [speed, 0.97 * speed, 1.02 * speed],
            "step_seconds": {"median": step, "input": 0.02 * step, "compute": 0.7 * step, "communication": 0.3 * step,
                             "exposed_communication": 0.2 * step, "update": 0.06 * step, "other": 0.02 * step},
            "bytes_per_step_per_rank": 901160, "replica_bytes": 84500000, "final_loss": 0.3512, "final_accuracy": 0.79,
            "val_loss": 0.4, "val_accuracy": 0.878, "max_loss_deviation": 1.4e-6 if synchronous else 0.2,
            "max_loss_deviation_first_ten": 2.4e-7 if synchronous else 0.03, "max_parameter_deviation": 4.8e-7,
            "replicas_equal": synchronous, "target_seconds": 2.7, "target_examples": 19200, "curve": curve, "epochs": [],
            "buckets": [{"bytes": size, "algorithm": name} for size, name in buckets], "report": {}}


def absent(strategy, status="unavailable", reason="no CUDA driver on this machine"):
    names = run("")
    return {**{key: [] if isinstance(value, list) else None for key, value in names.items()}, "strategy": strategy,
            "replicas": 2, "threads": 1, "status": status, "reason": reason, "synchronous": True}


def comparison(runs, counts=(1, 2, 4), **more):
    names = list(dict.fromkeys(run["strategy"] for run in runs))
    points = [{"replicas": n, "examples_per_second": 4000 * n ** 0.8, "low": 3900 * n ** 0.8, "high": 4100 * n ** 0.8}
              for n in counts]
    return {"lockstep": "0.1.0", "command": "compare", "status": "done", "model": "cnn", "dataset": "fashion-mnist",
            "optimizer": "sgd:learning_rate=0.01", "device": "cpu", "hardware": "a processor, 2 cores", "seed": 7,
            "global_batch": 128, "steps": 300, "target": {"metric": "val_accuracy", "value": 0.85}, "reference": 0,
            "rounding_spread": 2.1e-6, "rounding_spread_first_ten": 4.8e-7, "rounding_spread_parameters": 8.3e-7,
            "runs": runs, "scaling": [{"strategy": name, "points": points} for name in names],
            "verdict": ["hierarchical-copy is fastest: 7,390 examples/s, 1.75 times one device.",
                        "Communication hides under backward."],
            "suggestions": ["A larger global batch."], **more}


def usual():
    return comparison([run("one-device", 1, 4210.0, buckets=()), run("ring"), run("hierarchical-copy", 2, 7390.0),
                       run("central-storage", 2, 6100.0, buckets=()), run("parameter-server:mode=sync", 2, 5400.0),
                       run("parameter-server:mode=async", 2, 6900.0, synchronous=False), absent("nccl")],
                      comparisons=[{"a": "hierarchical-copy", "a_replicas": 2, "b": "parameter-server:mode=async", "b_replicas": 2,
                                    "p": 0.3, "different": False}])


def elsewhere():
    """On a network that is not here, where a step of one takes hours, and one could not be simulated."""
    runs = [run("one-device", 1, 4210.0, buckets=()), run("ring"), {**run("ring+topk:fraction=0.01"), "way": "filtered"},
            {**run("diloco:steps=50,fragments=2"), "way": "rounds"}, run("central-storage")]
    for each, step in zip(runs, (0.03, 0.287, 9000.0, 0.124, None)):
        late = "topk" in each["strategy"]
        each["simulated"] = {"recorded_steps": 250 if late else 300, "unfiltered_steps": 100 if late else 0,
                             "unfiltered_step_seconds": 0.287 if late else None, "step_seconds": step, "work_seconds": step and 0.01, "exchange_seconds": step and step - 0.01,
                             "goal_step": 210, "goal_seconds": step and 210 * step,
                             "reason": None if step else "it uses no collective that describes a schedule"}
    return comparison(runs, simulated={"network": "internet", "compute": "compute as measured on this CPU", "goal": "a loss of 0.3931",
                                       "compute_scale": None, "compute_seconds": None, "goal_loss": 0.3931})


def many():
    names = ["one-device", *(f"{name}:transport=shared-memory" for name in ("ring", "tree", "torus", "direct", "two-level",
                                                                            "halving-doubling"))]
    plan = tuple((1 << 20, "halving-doubling") for _ in range(40))
    return comparison([run(name, count, 1000.0 * count, buckets=plan) for name in names for count in (1, 2, 4)])


def bare():
    """One run, and everything that may be null is."""
    only = {**absent("one-device", "done", None), "examples_per_second": 12.5}
    return comparison([only], counts=(1,), target=None, reference=None, rounding_spread=None, verdict=[], suggestions=[],
                      rounding_spread_first_ten=None, rounding_spread_parameters=None)


def hostile():
    broken = {**run(HOSTILE), "status": "failed", "reason": HOSTILE}
    texts = {key: HOSTILE for key in ("status", "model", "dataset", "optimizer", "device", "hardware")}
    return comparison([run(HOSTILE, buckets=((10, HOSTILE),)), broken, absent(HOSTILE, "failed", HOSTILE)],
                      verdict=[HOSTILE, HOSTILE], suggestions=[HOSTILE], **texts)


def failed():
    return comparison([absent("one-device", "failed", "out of memory"), absent("nccl"),
                       absent("ring", "interrupted", None)], counts=(), status="interrupted", verdict=[])


def wild():
    """Figures that no training should have: zero, huge, tiny, and losses that ran away."""
    strange = run("ring", 1024, 1e12)
    strange["curve"] = [{"step": i, "examples": i, "seconds": i * 1e-9, "loss": 10.0 ** (i - 3), "accuracy": None,
                         "val_loss": None, "val_accuracy": None} for i in range(9)]
    strange.update(max_loss_deviation=1e30, max_loss_deviation_first_ten=0.0, max_parameter_deviation=1e-30)
    slow = run("one-device", 1, 1e-3)
    return comparison([slow, strange])


COMMAND = ("lockstep train --model=cnn --dataset=fashion-mnist --steps=300 --strategy=parameter-server:mode=bounded,staleness=4,"
           "servers=2 --replicas=2 --threads=1 --batch=128 --save-weights='my weights-1e-3.safetensors'")


def commands():
    """Sentences with options in all places, and one that ends with a command."""
    return comparison([run("one-device", 1, 4210.0, buckets=()), run("ring")], suggestions=[
        "ring would gain from a larger --batch: backward gets longer (--threads=1 less), and the loss differs by 1.9e-7 - or less.",
        "--replicas=1,2,4 shows how the speed grows; train more --steps.", "Seconds -- not steps; a--b and --1 are no options.",
        "The fastest synchronous strategy: " + COMMAND])


CASES = {make.__name__: make for make in (usual, elsewhere, many, bare, hostile, failed, wild, commands)}

# What a reader would stumble over, as a list of sentences.
LOOK = r"""(() => {
const faults = [], wide = document.documentElement;
const say = (what, element) => faults.push(what + ": " + (element.textContent || element.outerHTML).slice(0, 80));
if (wide.scrollWidth > innerWidth) faults.push("the page is " + wide.scrollWidth + " pixels wide");
const scrolls = e => !!e.closest(".scroll, .command, .option");
for (const svg of document.querySelectorAll("svg:not(svg svg)")) {
    const box = svg.getBoundingClientRect();
    if (!(box.width > 0 && box.height > 0)) say("a chart without a size", svg);
    if (!scrolls(svg) && (box.left < -1 || box.right > innerWidth + 1)) say("a chart outside the page", svg);
}
for (const shape of document.querySelectorAll("rect, path.line, circle:not(.guide)")) {
    const box = shape.getBoundingClientRect();
    if (!(box.width > 0 || box.height > 0)) say("a shape without a size", shape);
    if (box.left < -2 || box.right > innerWidth + 2) say("a shape outside the page", shape);
}
const light = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = e => {
    for (; e; e = e.parentElement) {
        const colour = getComputedStyle(e).backgroundColor;
        if (colour !== "rgba(0, 0, 0, 0)" && colour !== "transparent") return colour;
    }
    return "rgb(255, 255, 255)";
};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walk.nextNode());) {
    const element = node.parentElement, tag = element.tagName.toLowerCase();
    if (!node.textContent.trim() || tag === "title") continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect(), style = getComputedStyle(element);
    if (box.height < 10 || parseFloat(style.fontSize) < 10) say("text of " + box.height + " pixels", element);
    if (!scrolls(element) && (box.left < -1 || box.right > innerWidth + 1)) say("text outside the page", element);
    const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const a = light(ink), b = light(paper(element));
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) say("text of little contrast, " + ink, element);
}
for (const svg of document.querySelectorAll("svg.plot, svg.scale")) {
    const boxes = [...svg.querySelectorAll(":scope > text")].map(text => [text, text.getBoundingClientRect()]);
    boxes.forEach(([text, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
        if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
            say("texts over each other, " + other.textContent, text);
    }));
}
for (const svg of document.querySelectorAll("svg[role=img]"))
    if (!svg.querySelector(":scope > title") && !svg.getAttribute("aria-labelledby")) say("a chart without a name", svg);
for (const named of document.querySelectorAll("[aria-labelledby], [aria-describedby]"))
    for (const id of [named.getAttribute("aria-labelledby"), named.getAttribute("aria-describedby")])
        if (id && !document.getElementById(id)) say("a name that is not there, " + id, named);
return faults.slice(0, 20);
})()"""


# Of each hyphenated word, option and word of a command in the verdict: its text, how many lines it stands in, and whether
# its letters have one width.
LINES = r"""(() => [...document.querySelectorAll(".verdict .word, .verdict .command span")].flatMap(element => {
    const code = element.querySelector("code") || element, range = document.createRange(), texts = [];
    range.selectNodeContents(code);
    const tops = new Set([...range.getClientRects()].filter(box => box.width > 0).map(box => Math.round(box.top)));
    const wide = text => {
        const probe = document.createElement("span");
        probe.textContent = text;
        probe.style.cssText = "white-space:pre;position:absolute";
        code.append(probe);
        const width = probe.getBoundingClientRect().width;
        probe.remove();
        return width;
    };
    return [[code.textContent, tops.size, Math.abs(wide("iiii") - wide("MMMM")) < 0.01 * wide("MMMM")]];
}))()"""


class PageTest(ProgramTest):
    def page(self, name):
        write_json(self.path(name + ".json"), CASES[name]())
        path = self.path(name + ".html")
        subprocess.run([MAKE_PAGE, self.path(name + ".json"), path], check=True, timeout=60)
        return path


class Parser(html.parser.HTMLParser):
    EMPTY = {"meta", "link", "br", "wbr", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.faults = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


class Read(PageTest):
    def test_every_page_is_well_formed_as_xml_and_as_html(self):
        for name in CASES:
            with self.subTest(name):
                with open(self.page(name), encoding="utf-8") as file:
                    text = file.read()
                root = xml.fromstring(text)
                ids = [element.get("id") for element in root.iter() if element.get("id")]
                self.assertEqual(len(ids), len(set(ids)), "an id twice")
                parser = Parser()
                parser.feed(text)
                parser.close()
                self.assertEqual((parser.faults, parser.open), ([], []))
                self.assertNotIn("script", parser.tags)
                for outside in ("http:", "https:", "url(", "@import", "src="):
                    self.assertNotIn(outside, text)

    def test_a_hostile_text_is_text(self):
        with open(self.page("hostile"), encoding="utf-8") as file:
            root = xml.fromstring(file.read())
        said = HOSTILE.replace("\u202e", " ")  # which turned what follows about
        self.assertEqual("".join(root.find(".//h1").itertext()), said)
        self.assertIn(said, "".join(root.find(".//section[@id='table']").itertext()))

    def test_the_tables_have_a_cell_for_each_column_and_headings_with_a_scope(self):
        with open(self.page("usual"), encoding="utf-8") as file:
            tables = xml.fromstring(file.read()).findall(".//section[@id='table']//table")
        # The first says of each strategy that could not run why; the others have those with figures.
        self.assertEqual([len(table.findall("tbody/tr")) for table in tables], [7, 6, 6])
        for table in tables:
            heads = table.findall("thead/tr/th")
            self.assertTrue(all(head.get("scope") == "col" for head in heads))
            for row in table.findall("tbody/tr"):
                self.assertEqual(row.find("th").get("scope"), "row")
                self.assertEqual(sum(int(cell.get("colspan", "1")) for cell in row.findall("td")), len(heads) - 1)

    def test_options_and_commands_are_code_and_copied_as_they_are(self):
        with open(self.page("commands"), encoding="utf-8") as file:
            verdict = xml.fromstring(file.read()).find(".//header")
        self.assertEqual(["".join(code.itertext()) for code in verdict.findall(".//code")],
                         ["--batch", "--threads=1", "--replicas=1,2,4", "--steps", COMMAND])
        self.assertEqual(["".join(item.itertext()) for item in verdict.findall("ul/li")], commands()["suggestions"])


# A page with one fault of each kind that is looked for.
FAULTY = """<!DOCTYPE html><html><body style="background:#fff"><p style="width:3000px">wide</p>
<p style="font-size:5px">small</p><p style="color:#ddd">pale</p><svg width="0" height="9"></svg>
<svg class="plot" role="img" width="90" height="90"><rect/><text y="20">one</text><text y="20">two</text></svg>
<p aria-labelledby="nobody">named</p><script src="missing.js"></script><script>console.error("a word");throw 1;</script>
</body></html>"""


@unittest.skipUnless(Browser.find(), "chromium is not installed")
class Picture(ProgramTest):
    def test_the_picture_of_the_readme_can_be_made(self):
        picture, kept = self.path("page.png"), os.path.join(PICTURES, "compare.png")
        made = subprocess.run([sys.executable, os.path.join(PICTURES, "page.py"), LOCKSTEP, picture, "--model=mlp", "--dataset=synthetic",
                               "--strategies=ring", "--replicas=2", "--steps=10", "--speed-steps=0", "--device=cpu"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        sizes = []
        for path in (picture, kept):
            with open(path, "rb") as file:
                content = file.read()
            self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n", path)
            sizes.append(struct.unpack(">2I", content[16:24]))
            self.assertGreater(len(content), 30_000, path)  # an empty page has 5 KB
            self.assertLess(len(content), 300_000, path)
        self.assertEqual(sizes[0], sizes[1])


@unittest.skipUnless(Browser.find(), "chromium is not installed")
class Looked(PageTest):
    """One browser for all."""

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(Browser.find())

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def look(self, path):
        for width in WIDTHS:
            for theme in THEMES:
                with self.subTest(os.path.basename(path), width=width, theme=theme):
                    self.browser.open("file://" + path, width, theme)
                    self.assertEqual(self.browser.evaluate(LOOK), [])
                    self.assertEqual(self.browser.complaints(), [])
                    self.assertEqual([url for url in self.browser.requests() if url != "data:,"], ["file://" + path])

    def test_the_browser_sees_faults(self):
        with open(self.path("faulty.html"), "w") as file:
            file.write(FAULTY)
        self.browser.open("file://" + self.path("faulty.html"), 400, "light")
        faults = "\n".join(self.browser.evaluate(LOOK))
        # Of how many pixels a text is depends on the font and on how the browser rounds.
        self.assertRegex(faults, r"text of [0-9.]+ pixels: small")
        for fault in ("pixels wide", "little contrast", "a chart without a size", "a shape without",
                      "texts over each other, two", "a chart without a name", "a name that is not there, nobody"):
            self.assertIn(fault, faults)
        complaints = str(self.browser.complaints())
        for complaint in ("a word", "exceptionThrown", "missing.js"):
            self.assertIn(complaint, complaints)
        self.assertIn("file://" + self.path("missing.js"), self.browser.requests())

    def test_every_page_is_drawn_readable_and_quiet(self):
        for name in CASES:
            self.look(self.page(name))

    def test_the_page_of_a_real_comparison_is_drawn(self):
        path = self.path("real.html")
        outcome = self.lockstep("compare", "--model=mlp", "--dataset=synthetic", "--steps=30", "--replicas=1,2", "--quiet",
                                "--strategies=ring,nccl", "--device=cpu", "--html=" + path)
        self.assertEqual(outcome.code, 0, outcome.err)
        self.look(path)
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('section')].map(s => s.id)"), SECTIONS)
        self.assertIn("nccl", self.browser.evaluate("document.querySelector('#table').innerText"))

    def test_at_1400_pixels_every_table_is_seen_whole(self):
        for name in CASES:
            self.browser.open("file://" + self.page(name), 1400, "light")
            tables = self.browser.evaluate(
                "[...document.querySelectorAll('#table .scroll')].map(box => [box.querySelector('table').getBoundingClientRect()"
                ".right - box.getBoundingClientRect().right, box.scrollWidth - box.clientWidth, "
                "[...box.querySelectorAll('thead th')].map(th => th.textContent)])")
            for beyond, scrolled, _ in tables:
                self.assertLess(beyond, 1, name)
                self.assertLess(scrolled, 2, name)
            if name in ("usual", "many", "wild"):
                self.assertEqual(tables[-1][2][-4:], ["loss dev. (10)", "loss dev.", "param. dev.", "replicas equal"])

    def test_options_and_commands_are_monospaced_and_never_torn(self):
        for width in WIDTHS:
            self.browser.open("file://" + self.page("commands"), width, "light")
            words = self.browser.evaluate(LINES)
            code = {"--batch", "--threads=1", "--replicas=1,2,4", "--steps", *COMMAND.split(" ")}
            self.assertLessEqual(code | {"1.9e-7"}, {text for text, _, _ in words})
            for text, lines, monospaced in words:
                self.assertEqual(lines, 1, f"'{text}' is torn at {width} pixels")
                self.assertEqual(monospaced, text in code, text)
            # At 400 pixels some do not fit into one line, so that there is something to tear.
            self.assertEqual(self.browser.evaluate("document.querySelector('.command').getClientRects()[0].height > "
                                                   "2 * parseFloat(getComputedStyle(document.querySelector('.command')).lineHeight)"),
                             True)

    def test_the_usual_page_has_every_chart(self):
        self.browser.open("file://" + self.page("usual"), 1400, "light")
        evaluate = self.browser.evaluate
        self.assertEqual(evaluate("[...document.querySelectorAll('section')].map(s => s.id)"), SECTIONS)
        count = "document.querySelectorAll('{}').length"
        self.assertEqual(evaluate(count.format("#curves figure")), 8)  # four measures, by examples and by seconds
        self.assertEqual(evaluate(count.format("#curves figure:first-child path.line")), 6)
        self.assertEqual(evaluate(count.format("#curves path.guide")), 2)  # the target
        self.assertEqual(evaluate(count.format("#scaling figure path.guide")), 1)  # the ideal
        self.assertEqual(evaluate(count.format("#speed svg.bar")), 6)
        self.assertEqual(evaluate(count.format("#speed circle.round")), 18)
        self.assertEqual(evaluate(count.format("#steps svg.bar")), 6)
        self.assertEqual(evaluate(count.format("#deviation svg.strip:not(.scale)")), 15)
        self.assertEqual(evaluate(count.format("#buckets rect.bucket")), 8)

    def test_bars_are_as_long_as_what_they_show(self):
        self.browser.open("file://" + self.page("usual"), 1400, "light")
        widths = self.browser.evaluate("[...document.querySelectorAll('#speed rect.fill')].map(r => "
                                       "r.getBoundingClientRect().width)")
        for width, speed in zip(widths, (4210, 7150, 7390, 6100, 5400, 6900)):
            self.assertAlmostEqual(width / widths[2], speed / 7390, delta=0.002)

    def test_the_verdict_is_the_largest_text_and_comes_first(self):
        for width in WIDTHS:
            self.browser.open("file://" + self.page("usual"), width, "light")
            self.assertTrue(self.browser.evaluate(
                "[...document.querySelectorAll('body *:not(h1, h1 *)')].every(e => parseFloat(getComputedStyle(e).fontSize) < "
                "parseFloat(getComputedStyle(document.querySelector('h1')).fontSize))"))
            self.assertLess(self.browser.evaluate("document.querySelector('h1').getBoundingClientRect().top"), 120)

    def test_a_box_in_the_legend_hides_the_lines_of_its_run(self):
        self.browser.open("file://" + self.page("usual"), 400, "dark")
        shown = ("[...document.querySelectorAll('#curves .run2')].map(e => getComputedStyle(e).display === 'none')"
                 ".reduce((n, hidden) => n + !hidden, 0)")
        self.assertGreater(self.browser.evaluate(shown), 8)
        self.browser.evaluate("document.getElementById('show2').click()")
        self.assertEqual(self.browser.evaluate(shown), 0)

    def test_lines_differ_by_dashes_and_by_colour(self):
        for theme in THEMES:
            self.browser.open("file://" + self.page("usual"), 1400, theme)
            styles = self.browser.evaluate(
                "[...document.querySelectorAll('#curves figure:first-child path.line')].map(p => "
                "{ const s = getComputedStyle(p); return [s.stroke, s.strokeDasharray]; })")
            self.assertEqual(len({style[0] for style in styles}), len(styles))
            self.assertEqual(len({style[1] for style in styles}), len(styles))


if __name__ == "__main__":
    main()
