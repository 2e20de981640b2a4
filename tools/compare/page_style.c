// SPDX-License-Identifier: Apache-2.0
// The style sheet of the page. Colours after Okabe and Ito, who chose them to be told apart by the colour-blind, made
// darker or lighter where paper or ink needs it; lines differ by dashes too. Nothing is smaller than 12 pixels.
#include "tools/compare/page_parts.h"

static const char *const light[LS_PAGE_COLOURS] = {"#3b4252", "#0072b2", "#d55e00", "#008060",
                                                   "#b0508a", "#9a6b00", "#2a8fc7", "#6a4fb3"};
static const char *const dark[LS_PAGE_COLOURS] = {"#c8d0dc", "#4ea8e0", "#ff8a3d", "#2fc79a",
                                                  "#e695c4", "#e8b93a", "#8fd3ff", "#b7a2f2"};
static const char *const dashes[LS_PAGE_DASHES] = {"none",     "9 4", "2 4",
                                                   "10 4 2 4", "5 3", "14 4 2 4 2 4"};

// In two: a compiler need not take more than 4095 characters in one text.
static const char text_rules[] =
    "*{box-sizing:border-box}\n"
    "html{-webkit-text-size-adjust:100%}\n"
    "body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 "
    "system-ui,-apple-system,'Segoe UI',"
    "Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1280px;margin:0 auto;padding:clamp(16px,3vw,40px);overflow-wrap:anywhere}\n"
    "h1{font-size:clamp(1.5rem,1.1rem + 2vw,2.6rem);line-height:1.2;margin:.3em 0 "
    ".5em;font-weight:700;"
    "letter-spacing:-.01em;text-wrap:balance}\n"
    "h2{font-size:1.3rem;line-height:1.3;margin:0 0 .3rem}\n"
    "h3{font-size:1rem;margin:0 0 .2rem}\n"
    "small{font-size:.8125rem;color:var(--soft)}\n"
    "p{margin:.4rem 0}\n"
    ".about,.note,p.axis,.reason{color:var(--soft)}\n"
    ".about{font-size:.875rem;margin:0}\n"
    ".note{font-size:.875rem;margin:0 0 .8rem}\n"
    ".name{unicode-bidi:isolate}\n"
    // A word stays whole and a command breaks at spaces alone; what is longer than its line scrolls.
    ".word{display:inline-block;max-width:100%}\n"
    ".option,.command{overflow-x:auto}.option{vertical-align:bottom}\n"
    "code{font:.9375em/1.5 ui-monospace,Menlo,Consolas,'DejaVu Sans "
    "Mono',monospace;white-space:nowrap}\n"
    ".command{display:block;white-space:normal;margin:.3rem 0;padding:.4rem "
    ".7rem;background:var(--card);border:1px solid var(--edge);border-radius:6px}\n"
    ".command span{white-space:nowrap}\n"
    ".verdict>p:not(.about){font-size:1.125rem;max-width:60em}\n"
    ".verdict h2{font-size:1rem;margin-top:1.2rem}\n"
    ".verdict ul{margin:.2rem 0;padding-left:1.2rem;max-width:60em}\n"
    ".verdict .sentences{margin:.6rem 0;columns:2 30em;column-gap:2.5rem;max-width:none}"
    ".sentences li{margin:0 0 .3rem;break-inside:avoid}\n"
    ".verdict .warning{border-left:4px solid var(--exposed);padding:.2rem "
    ".8rem;background:var(--card)}\n"
    "section{background:var(--card);border:1px solid var(--edge);border-radius:10px;"
    "padding:clamp(14px,2vw,24px);margin-top:20px;min-width:0}\n"
    ".pair,.plots,.panels{display:grid;grid-template-columns:minmax(0,1fr);gap:0 28px}\n"
    ".plots,.panels{gap:24px 36px}.plots+h3{margin-top:32px}\n"
    "@media(min-width:900px){.pair,.plots{grid-template-columns:repeat(2,minmax(0,1fr))}\n"
    ".pair{gap:0 20px}.panels{grid-template-columns:repeat(3,minmax(0,1fr))}}\n"
    // Bars: the name and the value above, the picture below; beside each other where there is room.
    ".row{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 14px;padding:6px "
    "0;align-items:baseline}\n"
    ".row>svg,.row>.detail,.row>.reason{flex:0 0 100%}\n"
    ".label{font-weight:600;font-size:.9375rem}.value{font-size:.875rem}\n"
    ".reason,.detail{font-size:.875rem}.detail{color:var(--soft)}\n"
    ".item{display:inline-block;margin-right:.9em}\n"
    // A shadow at the edge behind which the table goes on.
    ".scroll{overflow-x:auto;max-width:100%;background:linear-gradient(to left,var(--card) "
    "40%,transparent) "
    "right/48px 100% no-repeat local,linear-gradient(to left,var(--edge),transparent) right/16px "
    "100% no-repeat "
    "scroll}\n"
    ".scroll:focus-visible{outline:2px solid var(--compute);outline-offset:2px}\n"
    "table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}\n"
    "#table table{min-width:100%}#table h3{margin-top:1.2rem}#scaling th{min-width:9rem}\n"
    "th,td{padding:6px 10px;border-bottom:1px solid "
    "var(--edge);text-align:right;white-space:nowrap;"
    "vertical-align:top;overflow-wrap:normal}\n"
    "td.text,th[scope=row],th:first-child{text-align:left}\n"
    "td.text{white-space:normal}\n"
    "th[scope=row],th:first-child{position:sticky;left:0;background:var(--card);white-space:normal;"
    "min-width:8rem;max-width:13rem;overflow-wrap:anywhere}\n"
    "thead th{color:var(--soft);font-weight:600;vertical-align:bottom}\n"
    "abbr{text-decoration:none}th small{font-weight:400}\n"
    ".stay{position:sticky;left:9.5rem;display:inline-block;max-width:min(40rem,44vw);"
    "overflow-wrap:anywhere}\n"
    ".absent td{color:var(--soft)}\n"
    "dl{display:grid;grid-template-columns:minmax(7rem,auto) minmax(0,1fr);gap:2px "
    "16px;margin:.6rem 0 1.2rem;"
    "font-size:.875rem}\n"
    "dt{color:var(--soft)}dd{margin:0}\n"
    "#method p{max-width:60em;font-size:.9375rem}\n"
    "@media print{section{break-inside:avoid}body{background:none}}\n";

static const char picture_rules[] =
    "svg{display:block;overflow:visible}\n"
    "svg svg{overflow:hidden}\n"
    ".track{fill:var(--track)}\n"
    ".whisker{stroke:var(--ink);stroke-width:1.5}\n"
    ".round{fill:var(--soft)}\n"
    ".keys,.legend{list-style:none;margin:0 0 .8rem;padding:0;display:flex;flex-wrap:wrap;gap:4px "
    "18px;"
    "font-size:.875rem}\n"
    ".keys li,.legend li,.legend label{display:flex;align-items:center;gap:6px}\n"
    ".legend input{margin:0;display:none}\n"
    ".key{width:14px;height:14px;border-radius:3px;flex:none}\n"
    ".sample{flex:none}\n"
    ".key.input,.segment.input{background:var(--input);fill:var(--input)}\n"
    ".key.compute,.segment.compute{background:var(--compute);fill:var(--compute)}\n"
    ".key.exposed,.segment.exposed{background:var(--exposed);fill:var(--exposed)}\n"
    ".key.update,.segment.update{background:var(--update);fill:var(--update)}\n"
    ".key.device,.segment.device{background:var(--device);fill:var(--device)}\n"
    ".key.other,.segment.other{background:var(--other);fill:var(--other)}\n"
    ".key.hidden{height:7px;background:var(--hidden)}.segment.hidden{fill:var(--hidden)}\n"
    ".segment,.bucket{stroke:var(--card);stroke-width:1}\n"
    ".bucket.odd{opacity:.6}\n"
    "figure{margin:0;min-width:0}\n"
    "figcaption{font-weight:600}\n"
    "p.axis{font-size:.8125rem;margin:0 0 8px}\n"
    "svg.plot{width:calc(100% - 72px);margin:0 16px 46px 56px}\n"
    "svg text{font-size:12px;fill:var(--soft)}\n"
    ".grid{stroke:var(--edge);stroke-width:1}\n"
    ".line{fill:none;stroke-width:2.25;stroke-linejoin:round;stroke-linecap:butt}\n"
    ".line.reference{stroke-width:8;opacity:.3;stroke-dasharray:none}\n"
    ".line.guide{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:2 4}\n"
    ".interval{stroke-width:2;opacity:.7}\n"
    ".dot{stroke:var(--card);stroke-width:1}\n"
    "svg "
    ".guide-name{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}\n"
    ".strip .band{fill:var(--band)}.strip .spread{stroke:var(--ink);stroke-width:1.5}\n"
    ".stem{stroke-width:2}\n";

static void print_theme(const struct ls_page *page, const char *rest, const char *const *colours)
{
    fprintf(page->out, ":root{%s", rest);
    for (size_t i = 0; i < LS_PAGE_COLOURS; i++)
        fprintf(page->out, ";--c%zu:%s", i, colours[i]);
    fputs("}", page->out);
}

static void print_lines(const struct ls_page *page)
{
    for (size_t i = 0; i < LS_PAGE_COLOURS; i++)
        fprintf(page->out,
                ".line.colour%zu,.interval.colour%zu,.stem.colour%zu{stroke:var(--c%zu)}"
                ".dot.colour%zu,.fill.colour%zu,.bucket.colour%zu{fill:var(--c%zu)}\n",
                i, i, i, i, i, i, i, i);
    for (size_t i = 0; i < LS_PAGE_DASHES; i++)
        fprintf(page->out, ".line.dash%zu{stroke-dasharray:%s}\n", i, dashes[i]);
}

// A box in the legend that is not checked hides the lines of its run; where the browser cannot, there are no boxes.
static void print_switches(const struct ls_page *page)
{
    fputs("@supports selector(:has(*)){.curves .legend input{display:block}\n", page->out);
    for (size_t i = 0; i < page->run_count; i++)
        fprintf(page->out, ".curves:has(#show%zu:not(:checked)) .run%zu{display:none}\n", i, i);
    fputs("}\n", page->out);
}

void ls_page_style(const struct ls_page *page)
{
    fputs("<style>\n", page->out);
    print_theme(
        page,
        "color-scheme:light "
        "dark;--paper:#f4f5f7;--card:#fff;--ink:#1b2027;--soft:#57606a;--edge:#dfe3e8;"
        "--track:#eceff3;--band:#c9d1dc;--input:#9a6b00;--compute:#0072b2;--exposed:#d55e00;"
        "--update:#008060;--device:#7a4fb5;--other:#9aa3ae;--hidden:#f0b48c",
        light);
    fputs("\n@media(prefers-color-scheme:dark){", page->out);
    print_theme(
        page,
        "--paper:#0d1117;--card:#161b22;--ink:#e6edf3;--soft:#a3adb8;--edge:#2d343d;--track:#"
        "222932;"
        "--band:#3d4653;--input:#e8b93a;--compute:#4ea8e0;--exposed:#ff8a3d;--update:#2fc79a;"
        "--device:#b48ef0;--other:#6b7480;--hidden:#8a5a38",
        dark);
    fputs("}\n", page->out);
    fputs(text_rules, page->out);
    fputs(picture_rules, page->out);
    print_lines(page);
    print_switches(page);
    fputs("</style>\n", page->out);
}
