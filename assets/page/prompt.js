// Tells the views that show results what stands in their prompt's box, so that they can say when it is another prompt.

const VIEWS = { live: "#race .mars-race", grid: "#grid .mars-grid" };
const PAUSE = 100; // milliseconds until a view that is not mounted yet is looked for again

export function mountPrompt() {
  const wanted = {};
  const tell = (place) => {
    const view = document.querySelector(VIEWS[place])?.lineView;
    if (view) view.want(wanted[place]);
    else setTimeout(() => tell(place), PAUSE);
  };
  // Called by the page whenever a box changes, whoever changed it.
  window.marsPrompt = (place, prompt) => {
    wanted[place] = prompt;
    tell(place);
  };
}
