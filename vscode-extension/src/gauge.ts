// A share as a small picture for a tree row: a bar that fills from the left. It stands in the icon's column, so that
// bars line up whatever the labels are. Pure; no VS Code. The number stands beside it, so colour says nothing alone.

/** Steps of the bar; more could not be told apart on 16 pixels. */
const steps = 14;

const colours = {
  dark: { track: '#ffffff26', bar: '#f0883e' },
  light: { track: '#0000001f', bar: '#c4500c' },
};

/** The step that shows `share`, when the greatest share among the rows is `shareMax`; 0 is for nothing at all. */
export function gaugeStep(share: number, shareMax: number): number {
  if (!(share > 0) || !(shareMax > 0)) return 0;
  return Math.max(1, Math.round((Math.min(share, shareMax) / shareMax) * steps));
}

/** The bar as SVG. */
export function gaugeSvg(step: number, theme: 'dark' | 'light'): string {
  const { track, bar } = colours[theme];
  const rect = (width: number, fill: string) => `<rect x="1" y="5" width="${width}" height="6" rx="1.5" fill="${fill}"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16">${rect(steps, track)}${step > 0 ? rect(step, bar) : ''}</svg>`;
}
