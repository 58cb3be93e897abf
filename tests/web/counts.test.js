import assert from "node:assert/strict";
import { test } from "node:test";

import { beginsWithSpace } from "../../assets/web/text/text.js";

test("a gap takes the room of a space, not of the letter behind a line end", () => {
  const spaced = [" a", "\ta", "a", "\n", "\nb", "\n    b", ""].map((text) => beginsWithSpace({ text }));
  assert.deepEqual(spaced, [true, true, false, false, false, false, false]);
});
