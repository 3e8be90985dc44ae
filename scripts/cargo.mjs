// The commands by which cargo builds everything. It chooses the features of shared dependencies by the packages that are built
// together, and compiles a dependency for each profile. So there is one command for what users get, and one profile.

import { join } from 'node:path';
import { target, top } from './step.mjs';

/** Returns the arguments of cargo to build dwell and the binding, optimized or not. */
export const building = ({ release = true } = {}) => ['build', '-p', 'dwell-cli', '-p', 'dwell-node', ...(release ? ['--release'] : [])];

/**
 * Returns a command of cargo that takes the dependencies as they were built for users. Our crates are compiled as testing.toml
 * says, next to those of users: programs go to a folder of their own. (Before 1.91 cargo has no build-dir and builds all there.)
 * @param {string} verb
 * @param {string[]} words
 */
export const checking = (verb, ...words) => ({
  command: ['cargo', verb, '--release', '--config', join(top, 'scripts/testing.toml'), ...words],
  env: { CARGO_BUILD_BUILD_DIR: target, CARGO_TARGET_DIR: join(target, 'testing') },
});
