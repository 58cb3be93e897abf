import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["node_modules/", "runs/", "build/", ".venv/", "assets/built/"] },
  js.configs.recommended,
  {
    files: ["assets/web/**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.browser },
    rules: {
      eqeqeq: "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "no-control-regex": "off", // invisible characters are looked for on purpose
    },
  },
  {
    files: ["tests/web/**/*.js", "tools/*.js", "*.js"],
    languageOptions: { sourceType: "module", globals: globals.node },
  },
];
