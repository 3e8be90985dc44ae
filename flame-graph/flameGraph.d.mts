// What enters the flame graph of flameGraph.mjs.

export interface FlameCause {
  kind: 'static' | 'dynamic';
  cause: string;
  label: string;
  shareMin: number;
  shareMax: number;
}

export interface FlameAnalysis {
  /** Null unless the scale is absolute. */
  cpi: number | null;
  cpiMin: number | null;
  cpiMax: number | null;
  /** Null unless the scale is absolute. */
  execution: number | null;
  executionMax: number;
  causes: readonly FlameCause[];
}

export interface FlameFunction {
  kind: 'function' | 'application' | 'event' | 'incomplete';
  name: string;
  image: string;
  own: number;
  file: string | null;
  line: number | null;
  analysis: FlameAnalysis | null;
}

export interface FlameData<Function extends FlameFunction = FlameFunction> {
  /** Name of everything. */
  title?: string;
  /** Unit of `own`. */
  unit: string;
  /** What one of them stands for; 0: not known. */
  seconds?: number;
  functions: readonly Function[];
  /** Of each node its caller's node, which precedes it, or -1; nodes of one caller are in descending order of what is in them. */
  parents: ArrayLike<number>;
  /** Of each node its function's index twice, plus one if it is inlined; negative: that many frames that are merged. */
  codes: ArrayLike<number>;
  /** Of each node what ends in it. */
  own: ArrayLike<number>;
}

export interface FlameOptions<Function extends FlameFunction = FlameFunction> {
  /** Whether a click opens the function; otherwise it zooms, as Enter and a double click do. */
  clickOpens?: boolean;
  /** Opens a function: at a click if `clickOpens`, and at the space bar. */
  open?(each: Function, index: number): void;
  /** Makes a link to what the host shows of a function. */
  link?(each: Function, index: number): HTMLElement | undefined;
}

export class FlameGraph<Function extends FlameFunction = FlameFunction> {
  constructor(host: HTMLElement, data: FlameData<Function>, options?: FlameOptions<Function>);
  show(data: FlameData<Function>): void;
  /** Takes what was learned of the same functions; what is shown stays. */
  know(functions: readonly Function[]): void;
  /** Draws again: the colors around have changed. */
  recolor(): void;
  dispose(): void;
}
