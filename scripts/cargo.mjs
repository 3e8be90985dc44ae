// The command by which cargo builds everything for users. It is one command, because cargo chooses the features of shared
// dependencies by the packages that are built together: building the binding separately would compile them, and our crates that
// it depends on, a second time.

/** Returns the arguments of cargo to build dwell and the binding, optimized or not. */
export const building = ({ release = true } = {}) => ['build', '-p', 'dwell-cli', '-p', 'dwell-node', ...(release ? ['--release'] : [])];

/** Returns the arguments of cargo to lint everything, tests and benches included. */
export const linting = () => ['clippy', '--workspace', '--all-targets', '--', '-D', 'warnings'];
