/**
 * The types of PROTOCOL.md, made of the schemas; `npm run protocol -w @dwell/lsp-server` writes them into the page.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/v4';
import * as requests from '../src/requests';
import * as results from '../src/results';

export const page = join(__dirname, '../PROTOCOL.md');
/** Stand in the page's tables: settings, announcements, and the arguments of commands. */
const elsewhere = ['Settings', 'ClientDwellCapabilities', 'RecordParams', 'NewEpochParams', 'RenameEpochParams', 'ImportPerfParams', 'CompareParams', 'EpochList', 'Selection', 'Procedure', 'Nothing'];

type Json = z.core.JSONSchema.BaseSchema;

/** A schema as TypeScript, named ones by their names. */
function typeText(schema: Json): string {
  const { $ref, anyOf, allOf, type, items, properties } = schema;
  if ($ref !== undefined) return $ref;
  if (allOf !== undefined) return allOf.map(typeText).join(' & ');
  if (anyOf !== undefined) return anyOf.map(typeText).join(' | ');
  if (schema.enum !== undefined) return schema.enum.map((value) => `'${String(value)}'`).join(' | ');
  switch (type) {
    case 'array': {
      const item = typeText(items as Json);
      return item.includes(' | ') ? `(${item})[]` : `${item}[]`;
    }
    case 'object':
      if (properties === undefined) return `Record<string, ${typeText(schema.additionalProperties as Json)}>`;
      return `{ ${Object.keys(properties).map((name) => `${member(schema, name)}${typeText(properties[name] as Json)}`).join('; ')} }`;
    case 'integer':
      return 'number';
    default:
      return Array.isArray(type) ? type.join(' | ') : (type ?? 'object');
  }
}

function member({ required = [] }: Json, name: string): string {
  return `${name}${required.includes(name) ? '' : '?'}: `;
}

/** A declaration. A member whose description was not given before has a line of its own. */
function declaration(name: string, schema: Json, explained: Set<string>): string[] {
  const { properties, description } = schema;
  const comment = description === undefined ? [] : [`// ${description}`];
  if (properties === undefined) return [...comment, `type ${name} = ${typeText(schema)};`];
  const lines: string[] = [];
  let plain: string[] = [];
  const flush = (): void => {
    if (plain.length > 0) lines.push(`  ${plain.join(' ')}`);
    plain = [];
  };
  for (const key of Object.keys(properties)) {
    const inner = properties[key] as Json;
    const text = `${member(schema, key)}${typeText(inner)};`;
    const why = inner.$ref === undefined ? inner.description : undefined;
    if (why === undefined || explained.has(why)) {
      if (plain.join(' ').length + text.length > 110) flush();
      plain.push(text);
    } else {
      flush();
      explained.add(why);
      lines.push(`  ${text} // ${why}`);
    }
  }
  flush();
  const [only = ''] = lines;
  return [...comment, ...(lines.length === 1 && !only.includes('//') ? [`interface ${name} {${only.slice(1)} }`] : [`interface ${name} {`, ...lines, '}'])];
}

/** Every type that requests and answers have, in the order of the schemas. */
export function protocolTypes(): string {
  const named = z.registry<{ id: string }>();
  const schemas = { ...requests, ...results };
  for (const [id, schema] of Object.entries(schemas)) if (schema instanceof z.core.$ZodType && !elsewhere.includes(id)) named.add(schema, { id });
  const { schemas: all } = z.toJSONSchema(named, { metadata: z.globalRegistry, unrepresentable: 'any', io: 'output', uri: (id) => id });
  const explained = new Set<string>();
  return Object.entries(all).flatMap(([name, schema]) => declaration(name, schema, explained)).join('\n');
}

/** The page with these types between its fences. */
export function withTypes(text: string): string {
  return text.replace(/(?<=```ts\n)[^]*?(?=\n```)/, () => protocolTypes());
}

if (process.argv.includes('--write')) writeFileSync(page, withTypes(readFileSync(page, 'utf8')));
