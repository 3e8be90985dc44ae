// A simulated week of 480 images through the real writer: see core/profile/examples/week.rs.

import { must } from '../step.mjs';

export async function week() {
  const { output } = await must('a simulated week', ['cargo', 'run', '-q', '--release', '-p', 'dwell-profile', '--example', 'week']);
  process.stdout.write(`\n${output.trimEnd()}\n`);
}
