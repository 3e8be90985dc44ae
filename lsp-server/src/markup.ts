/**
 * Text with links, emphasis and tables, for hovers and the legend: as Markdown, or as plain text with its links beside it, for
 * editors that render no Markdown. Pure; knows nothing of profiles.
 */

/** Where a link leads. */
export type Target = { uri: string; line: number } | { procedure: string; address: number | null } | { legend: true };

export interface Markup {
  /** Text that must not be read as markup. */
  plain: (text: string) => string;
  strong: (text: string) => string;
  emphasis: (text: string) => string;
  code: (text: string) => string;
  link: (text: string, target: Target) => string;
  heading: (level: number, text: string) => string;
  /** `head`: undefined for a table that needs none; `aligned`: the columns of numbers, which stand right. */
  table: (rows: readonly (readonly string[])[], head?: readonly string[], aligned?: readonly number[]) => string;
  /** Lines whose columns stand below each other. */
  block: (lines: readonly string[]) => string;
}

/** `command`: the URI that runs a client's command. */
export const markdown = (command: (target: Exclude<Target, { uri: string }>) => string): Markup => ({
  plain: (text) => text.replace(/[\\`*_{}[\]|<>~]/g, '\\$&'),
  strong: (text) => `**${text}**`,
  emphasis: (text) => `*${text}*`,
  code: (text) => '`' + text.replaceAll('`', 'ˋ') + '`',
  link: (text, target) => `[${text}](${'uri' in target ? `${target.uri}#L${target.line + 1}` : command(target)})`,
  heading: (level, text) => `${'#'.repeat(level)} ${text}`,
  table: ([first = [], ...rest], head, aligned = []) => {
    const [top, body] = head === undefined ? [first, rest] : [head, [first, ...rest]];
    const rule = top.map((_, column) => (aligned.includes(column) ? '--:' : ':--'));
    return [top, rule, ...body].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
  },
  block: (lines) => `\`\`\`dwell-listing\n${lines.join('\n')}\n\`\`\``,
});

/** Mark the begin of a link or heading, its number among them, and its end. */
const marks = { begin: '\u{F0000}', number: '\u{F0001}', end: '\u{F0002}' };
const marked = /\u{F0000}(\d+)\u{F0001}([^\u{F0002}]*)\u{F0002}/u;

/** A part of a plain text: its first character and the one after its last, in UTF-16. */
export interface Span {
  start: number;
  end: number;
}
export type Link = Target & Span;

/** A text without marks, and where its links and headings are. */
export interface PlainText {
  text: string;
  links: Link[];
  headings: Span[];
}

/** Markup for a plain text; `finished` reads a text that was made with it. */
export function plainText(): { markup: Markup; finished: (text: string) => PlainText } {
  const targets: (Target | 'heading')[] = [];
  const mark = (text: string, target: Target | 'heading'): string => `${marks.begin}${targets.push(target) - 1}${marks.number}${text}${marks.end}`;
  const markup: Markup = {
    plain: (text) => text,
    strong: (text) => text,
    emphasis: (text) => text,
    code: (text) => text,
    link: mark,
    heading: (_level, text) => mark(text, 'heading'),
    table: (rows, head) => [...(head === undefined ? [] : [head]), ...rows].map((cells) => cells.join('   ')).join('\n'),
    block: (lines) => lines.join('\n'),
  };
  const finished = (text: string): PlainText => {
    const links: Link[] = [];
    const headings: Span[] = [];
    let rest = text;
    for (let found = marked.exec(rest); found !== null; found = marked.exec(rest)) {
      const [whole, number = '', words = ''] = found;
      const target = targets[Number(number)];
      const span = { start: found.index, end: found.index + words.length };
      if (target === 'heading') headings.push(span);
      else if (target !== undefined) links.push({ ...target, ...span });
      rest = rest.slice(0, found.index) + words + rest.slice(found.index + whole.length);
    }
    return { text: rest, links, headings };
  };
  return { markup, finished };
}
