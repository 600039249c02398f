// Chooses dark or light: the system's choice, until the button has been used.

const NEXT = { system: "dark", dark: "light", light: "system" };
const NAME = "pagewire-theme";
const button = document.getElementById("theme");

function stored() {
  try {
    const theme = localStorage.getItem(NAME);
    return theme in NEXT ? theme : "system";
  } catch {
    // A browser may forbid storage; the page works without.
    return "system";
  }
}

function store(theme) {
  try {
    localStorage.setItem(NAME, theme);
  } catch {
    // As above: the choice then lasts until the page is left.
  }
}

function show(theme) {
  document.documentElement.dataset.theme = theme;
  button.textContent = `Theme: ${theme}`;
}

show(stored());
button.addEventListener("click", () => {
  const theme = NEXT[document.documentElement.dataset.theme];
  store(theme);
  show(theme);
});
