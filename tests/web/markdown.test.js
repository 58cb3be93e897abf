import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { markdown } from "../../assets/web/text/markdown.js";
import { endsOf, pageIn } from "../../assets/web/text/rendered.js";
import { laneOf, PLAIN } from "./runs.js";

// The tree as a short text: tags around the pieces that they hold.
function told(text) {
  const one = (each) =>
    Array.isArray(each) ? text.slice(...each) : `<${each.tag}>${each.children.map(one).join("")}</${each.tag}>`;
  return markdown(text).map(one).join("");
}

describe("an answer as Markdown", () => {
  const cases = {
    "plain words": "<p>plain words</p>",
    "one\ntwo\n\nthree": "<p>one\ntwo</p><p>three</p>",
    "one  \ntwo": "<p>one  <br></br>two</p>",
    "# A *b*\n### C ##": "<h1>A <em>b</em></h1><h3>C</h3>",
    "a **b _c_** `d*e*` ~~f~~": "<p>a <strong>b <em>c</em></strong> <code>d*e*</code> <s>f</s></p>",
    "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
    "[words](http://x) ![picture](http://y)": "<p><u>words</u> <u>picture</u></p>",
    "- a\n- b\n  - c\n- d": "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>",
    "1. a\n\n2. b\nmore": "<ol><li>a</li><li>b\nmore</li></ol>",
    "1. a\n- b": "<ol><li>a</li></ol><ul><li>b</li></ul>",
    "> a\n> - b": "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>",
    "a\n---\nb": "<p>a</p><hr></hr><p>b</p>",
    "```python\nx = 1\n\n# no heading\n```\nb": "<pre><code>x = 1\n\n# no heading\n</code></pre><p>b</p>",
    "```\nstill being writ": "<pre><code>still being writ</code></pre>",
    "| a | b |\n| :-- | --: |\n| 1 | `|` |\n| 3 |": "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>`</td></tr><tr><td>3</td></tr></tbody></table>", // prettier-ignore
    "a | b": "<p>a | b</p>",
    "<script>alert(1)</script>": "<p><script>alert(1)</script></p>",
    "": "",
  };
  for (const [text, wanted] of Object.entries(cases))
    test(JSON.stringify(text), () => assert.equal(told(text), wanted));

  test("whatever is written, every piece lies in the text, in its order, and nothing hangs", () => {
    const parts = [
      "*",
      "**",
      "_",
      "`",
      "```\n",
      "\n",
      "- ",
      "1. ",
      "> ",
      "# ",
      "|",
      "---",
      "[a](b)",
      " ",
      "x",
      "~~",
      "  ",
    ];
    let state = 11;
    const next = (most) => (state = (state * 48271) % 2147483647) % most;
    for (let i = 0; i < 400; i += 1) {
      const text = Array.from({ length: next(60) }, () => parts[next(parts.length)]).join("");
      let last = 0;
      const look = (each) => {
        if (!Array.isArray(each)) return each.children.forEach(look);
        assert.ok(last <= each[0] && each[0] <= each[1] && each[1] <= text.length, JSON.stringify(text));
        last = each[1];
        return undefined;
      };
      markdown(text).forEach(look);
    }
    markdown(`${"> ".repeat(5000)}x`);
    markdown("*".repeat(20_000));
    markdown("`a".repeat(5000));
  });
});

describe("what is marked in it", () => {
  test("each forward up to where it wrote, empty ones apart", () => {
    const lane = laneOf(PLAIN);
    const text = lane.tokens.map((token) => token.text).join("");
    const ends = endsOf(lane);
    assert.equal(ends[0].step, null);
    assert.deepEqual(ends.slice(1).map(({ step }) => step.index), [0, 1, 2, 3]); // prettier-ignore
    assert.deepEqual(ends.map(({ to }) => text.slice(0, to)), ["", "ab", "abc", "abcef", "abcefg"]); // prettier-ignore
  });

  test("a page of HTML is known by its beginning, fenced or not", () => {
    assert.equal(pageIn("<!DOCTYPE html><p>a"), "<!DOCTYPE html><p>a");
    assert.equal(pageIn("```html\n<html><p>a</html>\n```\nThat is it."), "<html><p>a</html>");
    assert.equal(pageIn("```html\n<html><p>a"), "<html><p>a");
    assert.equal(pageIn("Use <html> first"), "");
    assert.equal(pageIn("<b>bold</b>"), "");
  });
});
