// Loaded before the server (`node -r`): keeps how long its event loop was held up, and tells on SIGUSR2, then begins anew.
const { monitorEventLoopDelay } = require('node:perf_hooks');
const { writeFileSync } = require('node:fs');

const delay = monitorEventLoopDelay({ resolution: 1 });
delay.enable();
process.on('SIGUSR2', () => {
  const ms = (ns) => ns / 1e6;
  const told = { p50: ms(delay.percentile(50)), p99: ms(delay.percentile(99)), max: ms(delay.max) };
  writeFileSync(process.env.DWELL_LOOP_DELAY, JSON.stringify(told));
  delay.reset();
});
