// Stands in for VS Code's native log writer, which npm does not ship built. The Output panel shows the files that it
// writes, so it must really write.
const fs = require('node:fs');
const path = require('node:path');

const levels = ['trace', 'debug', 'info', 'warning', 'error', 'critical'];

class Logger {
  constructor(_kind, name, file) {
    this.name = name;
    this.file = file;
    this.level = levels.indexOf('info');
    this.raw = false;
  }
  getLevel() { return this.level; }
  setLevel(level) { this.level = level; }
  clearFormatters() { this.raw = true; }
  setPattern() {}
  flush() {}
  drop() {}
  write(level, message) {
    if (level < this.level) return;
    const when = new Date().toISOString().replace('T', ' ').replace('Z', '');
    // Its folder may be gone when VS Code ends.
    if (!fs.existsSync(path.dirname(this.file))) return;
    fs.appendFileSync(this.file, this.raw ? message : `${when} [${levels[level]}] ${message}\n`);
  }
}
Logger.prototype.trace = function (message) { this.write(0, message); };
Logger.prototype.debug = function (message) { this.write(1, message); };
Logger.prototype.info = function (message) { this.write(2, message); };
Logger.prototype.warn = function (message) { this.write(3, message); };
Logger.prototype.error = function (message) { this.write(4, message); };
Logger.prototype.critical = function (message) { this.write(5, message); };

async function create(_name, file) {
  await fs.promises.mkdir(path.dirname(file), { recursive: true });
  return new Logger('', _name, file);
}

// One by one, not as an object: import() finds the names by scanning.
exports.version = '0-stub';
exports.setLevel = () => {};
exports.setFlushOn = () => {};
exports.Logger = Logger;
exports.createRotatingLogger = create;
exports.createAsyncRotatingLogger = create;
