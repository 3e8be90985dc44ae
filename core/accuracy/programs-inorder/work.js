// Objects, closures, regular expressions, sorting and JSON.
var state = 7;
function random(n) { state = (state * 1103515245 + 12345) % 2147483648; return state % n; }
function Account(name) { this.name = name; this.entries = []; }
Account.prototype.add = function (amount) { this.entries.push({ amount: amount, even: amount % 2 === 0 }); return this; };
Account.prototype.total = function () { return this.entries.reduce(function (sum, e) { return sum + (e.even ? e.amount : -1); }, 0); };
var accounts = [];
for (var i = 0; i < 30; i++) {
  var account = new Account('a' + random(1000));
  for (var j = 0; j < 40; j++) account.add(random(500));
  accounts.push(account);
}
accounts.sort(function (a, b) { return a.total() - b.total() || (a.name < b.name ? -1 : 1); });
var text = JSON.stringify(accounts);
var back = JSON.parse(text);
var numbers = text.match(/"amount":(\d+)/g).map(function (m) { return +m.replace(/\D+/, ''); });
function hanoi(n, a, b, c) { return n === 0 ? 0 : hanoi(n - 1, a, c, b) + 1 + hanoi(n - 1, c, b, a); }
var grid = [];
for (var y = 0; y < 40; y++) for (var x = 0; x < 40; x++) {
  var zr = 0, zi = 0, n = 0;
  while (n < 20 && zr * zr + zi * zi < 4) { var t = zr * zr - zi * zi + x / 20 - 1.5; zi = 2 * zr * zi + y / 20 - 1; zr = t; n++; }
  grid.push(n);
}
print(back.length, numbers.length, hanoi(10, 'a', 'b', 'c'), grid.reduce(function (a, b) { return a + b; }, 0));
