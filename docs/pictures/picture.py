# SPDX-License-Identifier: Apache-2.0
"""A picture as SVG: boxes, arrows, text that stays text; one style for all, in light and dark."""
import math
from xml.sax.saxutils import escape

# Colours after Okabe and Ito, as on the page of `lockstep compare`. A picture brings its own paper, so that it can be read
# also where the page around it is light and the reader's system dark.
STYLE = """
    .paper{fill:#ffffff;stroke:#d5dae3}
    text{fill:#1f2430;font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
    .soft{fill:#5a6372}.head{font-weight:600;font-size:14px}.middle{text-anchor:middle}.end{text-anchor:end}
    .on{fill:#ffffff;font-weight:600}
    .box{fill:#f4f6f9;stroke:#8b95a5}.group{fill:none;stroke:#8b95a5;stroke-dasharray:5 4}
    .cell{fill:#ffffff;stroke:#8b95a5}
    .rule{stroke:#d5dae3;fill:none}.frame{fill:none;stroke:#8b95a5}
    .first{fill:#0072b2}.second{fill:#008060}.third{fill:#b84f00}.fourth{fill:#6a4fb3}
    .first-line{stroke:#0072b2}.second-line{stroke:#008060}.third-line{stroke:#b84f00}.fourth-line{stroke:#6a4fb3}
    .line{fill:none;stroke-width:2}.dashed{stroke-dasharray:6 4}.dotted{stroke-dasharray:2 4}
    .wait{fill:none;stroke:#b84f00;stroke-dasharray:3 3}
"""
DARK = """
    .paper{fill:#14181f;stroke:#3a4352}
    text{fill:#e8ecf2}
    .soft{fill:#a3adbb}.on{fill:#0d1117}
    .box{fill:#1d2430;stroke:#78849a}.group,.frame{stroke:#78849a}.cell{fill:#14181f;stroke:#78849a}
    .rule{stroke:#3a4352}
    .first{fill:#4ea8e0}.second{fill:#2fc79a}.third{fill:#ff8a3d}.fourth{fill:#b7a2f2}
    .first-line{stroke:#4ea8e0}.second-line{stroke:#2fc79a}.third-line{stroke:#ff8a3d}.fourth-line{stroke:#b7a2f2}
    .wait{stroke:#ff8a3d}
"""


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Picture:
    def __init__(self, width, height, title, description):
        self.width, self.height, self.title, self.description = width, height, title, description
        self.parts = []

    def rect(self, x, y, width, height, style, radius=0):
        rounded = f' rx="{number(radius)}"' if radius else ""
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
                          f'{rounded} class="{style}"/>')

    def text(self, x, y, words, style=""):
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"' + (f' class="{style}"' if style else "") +
                          f'>{escape(words)}</text>')

    def box(self, x, y, width, height, words, style="box", text="middle"):
        """A box with lines of text in its middle."""
        lines = words.split("\n")
        self.rect(x, y, width, height, style, 5)
        for i, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 4.5 + 17 * (i - (len(lines) - 1) / 2), line, text)

    def line(self, points, style):
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(f'<path d="{path}" class="line {style}"/>')

    def arrow(self, x1, y1, x2, y2, colour, more="", bend=0.0):
        """From one point to another; `bend`: how far its middle lies to the left of the way, in pixels."""
        length = math.hypot(x2 - x1, y2 - y1)
        cx = (x1 + x2) / 2 + (y2 - y1) / length * bend * 2
        cy = (y1 + y2) / 2 - (x2 - x1) / length * bend * 2
        angle = math.atan2(y2 - cy, x2 - cx)
        bx, by = x2 - 7 * math.cos(angle), y2 - 7 * math.sin(angle)
        way = f"L{number(bx)} {number(by)}" if not bend else f"Q{number(cx)} {number(cy)} {number(bx)} {number(by)}"
        self.parts.append(f'<path d="M{number(x1)} {number(y1)}{way}" class="line {colour}-line {more}"/>')
        corners = [(x2, y2)] + [(x2 - 10 * math.cos(angle + side), y2 - 10 * math.sin(angle + side))
                                for side in (0.45, -0.45)]
        self.parts.append('<polygon points="' + " ".join(f"{number(x)},{number(y)}" for x, y in corners) +
                          f'" class="{colour}"/>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" aria-labelledby="title description">\n'
                f'  <!-- SPDX-License-Identifier: Apache-2.0; made by draw.py in this folder -->\n'
                f'  <title id="title">{escape(self.title)}</title>\n'
                f'  <desc id="description">{escape(self.description)}</desc>\n'
                f'  <style>{STYLE}    @media(prefers-color-scheme:dark){{{DARK}    }}\n  </style>\n'
                f'  <rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8" class="paper"/>\n' +
                "".join(f"  {part}\n" for part in self.parts) + "</svg>\n")
