// What cargo is asked to build for users. One command for all, since cargo chooses the features of shared dependencies by the
// packages that are built together: the binding by itself would compile them, and every crate of ours below it, once more.

/** Arguments of cargo to build dwell and the binding, optimized or not. */
export const building = ({ release = true } = {}) => ['build', '-p', 'dwell-cli', '-p', 'dwell-node', ...(release ? ['--release'] : [])];
