// The native module, as build.mjs puts it here.
'use strict';
module.exports = require(`./dwell-core.${process.platform}-${process.arch}.node`);
