"""How the page for a ticket looks, by day, by night and on paper."""

from __future__ import annotations

from prismdbg.log.timeline_svg import LEGEND

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d5dbe1; --code: #f3f5f7; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e3e8ee; --soft: #9aa6b2; --line: #333b44;
  --code: #1d232a; } }
body { margin: 0 auto; max-width: 1000px; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; font-weight: 600; margin: .8rem 0 .3rem; } p { margin: .35rem 0; } .soft { color: var(--soft); }
pre { background: var(--code); padding: .6rem .8rem; border-radius: 4px; overflow-x: auto; white-space: pre-wrap;
  font-size: 13px; margin: .3rem 0; }
.verdict { border-left: 3px solid var(--line); padding-left: .8rem; margin: .8rem 0; }
.mark { border-radius: 3px; padding: 0 .4em; color: #fff; font-weight: 600; font-size: .85em; }
.certain { background: #c0392b; } .likely { background: #a86b00; } .hint { background: #2f6db5; }
.legend { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-left: .6em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; } dt { color: var(--soft); }
dd { margin: 0; } .wide { overflow-x: auto; } svg { display: block; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top; }
th { white-space: nowrap; color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; } details { margin: .3rem 0; }
""" + "".join(f".c{at} {{ background: {color}; }}\n" for at, (color, _) in enumerate(LEGEND))
