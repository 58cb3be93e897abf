import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { identityOf } from "../../assets/web/core/colours.js";
import { currentHeader, withCurrentNames } from "../../assets/web/core/former.js";
import { FORMER_NAMES } from "../../assets/web/core/table.js";
import { Pin } from "../../assets/web/views/compare/tray.js";
import { laneOf, linesOf, PLAIN } from "./runs.js";

const OLD = { threshold: "entropy", target: 0.7, aim: "passes", groups: "one" };
const NEW = { tau_policy: "entropy", agreement_target: 0.7, auto_objective: "passes", mask_layout: "last" };

describe("former names of settings", () => {
  test("every former name is tested", () => assert.deepEqual(Object.keys(OLD), Object.keys(FORMER_NAMES)));

  for (const [i, former] of Object.keys(OLD).entries()) {
    const [old, current] = [{ [former]: OLD[former] }, Object.fromEntries([Object.entries(NEW)[i]])];
    const [[name, value]] = Object.entries(current);

    test(`${former} of a header is read as ${name}`, () => {
      const lane = laneOf(PLAIN, { settings: old });
      assert.equal(lane.settings[name], value);
      assert.equal(lane.header.settings[name], value);
      assert.equal(former in lane.settings, false);
    });

    test(`${former} of a step is read as ${name}`, () => {
      const lane = laneOf(PLAIN.map((row, at) => (at === 1 ? { ...row, settings: old } : row)));
      assert.equal(lane.steps[1].settings[name], value);
      assert.equal(former in lane.steps[1].settings, false);
    });

    test(`${former} of a pinned run is read as ${name}`, () => {
      const pin = new Pin({ lines: linesOf(PLAIN, { settings: old }) });
      assert.equal(pin.header.settings[name], value);
      assert.equal(pin.identity, identityOf(laneOf(PLAIN, { settings: current }).header));
    });

    test(`${former} next to ${name} is an error`, () => {
      assert.throws(() => withCurrentNames({ ...old, ...current }), new RegExp(`Set only ${name}\\.`));
    });
  }

  test("other names and words stay, in their order", () => {
    const values = { lookup: true, mask_layout: "every", constructor: "one", draft: "one" };
    assert.deepEqual(Object.entries(withCurrentNames(values)), Object.entries(values));
  });

  test("a header without settings stays as it is", () => assert.deepEqual(currentHeader({ type: "header" }), { type: "header" })); // prettier-ignore
});
