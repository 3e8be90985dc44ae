--- Dwell in Neovim (0.11 or later): the language server, and `:Dwell` for what LSP has no place for.
---
---     vim.opt.runtimepath:append('/path/to/dwell/neovim')
---     require('dwell').setup()
---
--- The server does the work (lsp-server/PROTOCOL.md). Here: what its answers look like in quickfix lists and buffers.
local M = {}

--- The client of a buffer, or any, since answers about recordings do not depend on the file.
local function client_of(buffer)
  return vim.lsp.get_clients({ name = 'dwell', bufnr = buffer })[1] or vim.lsp.get_clients({ name = 'dwell' })[1]
end

--- Asks the server. `use` gets the answer; errors are told in one line.
local function ask(method, params, use)
  local client = client_of(vim.api.nvim_get_current_buf())
  if not client then
    return vim.notify('dwell: the server does not run: open a source file first', vim.log.levels.ERROR)
  end
  client:request(method, params, function(err, answer)
    if err then return vim.notify('dwell: ' .. err.message, vim.log.levels.ERROR) end
    for _, note in ipairs(answer ~= vim.NIL and type(answer) == 'table' and answer.notes or {}) do
      vim.notify('dwell: ' .. note, vim.log.levels.INFO)
    end
    use(answer)
  end)
end

local function command(name, arguments, use)
  ask('workspace/executeCommand', { command = 'dwell.server.' .. name, arguments = arguments }, use)
end

local function go(place)
  vim.cmd.edit(vim.fn.fnameescape(vim.uri_to_fname(place.uri)))
  vim.api.nvim_win_set_cursor(0, { math.min(place.line + 1, vim.api.nvim_buf_line_count(0)), 0 })
end

--- Shows text in a buffer of its own, which is not written anywhere and is taken over by the next text of this title.
local function show(title, text)
  local name = 'dwell://' .. title
  local buffer = vim.fn.bufnr('^' .. vim.fn.escape(name, '[]*?{}\\') .. '$')
  if buffer < 0 then
    buffer = vim.api.nvim_create_buf(false, true)
    vim.api.nvim_buf_set_name(buffer, name)
  end
  vim.bo[buffer].modifiable = true
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, vim.split(text, '\n'))
  vim.bo[buffer].modifiable = false
  local window = vim.fn.bufwinid(buffer)
  if window >= 0 then
    vim.api.nvim_set_current_win(window)
  else
    vim.cmd.split()
    vim.api.nvim_win_set_buf(0, buffer)
    vim.wo.number, vim.wo.relativenumber, vim.wo.wrap = false, false, false
  end
  return buffer
end

local function map(buffer, keys, what, action)
  vim.keymap.set('n', keys, action, { buffer = buffer, nowait = true, desc = 'Dwell: ' .. what })
end

local function fill_quickfix(title, items)
  if #items == 0 then return vim.notify('dwell: ' .. title .. ': nothing to show') end
  vim.fn.setqflist({}, ' ', { title = title, items = items })
  vim.cmd('botright copen')
end

--- An entry of a quickfix list. Without a place it is text alone.
local function item(place, text, id)
  if place == nil or place == vim.NIL then return { text = text, user_data = id, valid = 0 } end
  return { filename = vim.uri_to_fname(place.uri), lnum = place.line + 1, text = text, user_data = id, valid = 1 }
end

--- A value that may be null, as text.
local function number(value, form)
  return value ~= nil and value ~= vim.NIL and form:format(value) or ''
end

local function cycles(row)
  if row.cpi ~= vim.NIL and row.cpi ~= nil then return ('  %.2f cycles/instr'):format(row.cpi) end
  return number(row.cpiMin, '  ≥ %.2f cycles/instr')
end

local function show_listing(procedure)
  ask('dwell/listing', { procedure = procedure }, function(answer)
    local buffer = show(answer.title, answer.text)
    vim.cmd([[syntax match Comment /^\*\*\* .*/ | syntax match WarningMsg /^\s\+\S\+ •\+/ | syntax match String /^  \S\+:\d\+  .*/]])
    local function line() return answer.lines[vim.fn.line('.')] or {} end
    local function jump(to)
      if to then vim.api.nvim_win_set_cursor(0, { to, 0 }) end
    end
    map(buffer, '<CR>', 'source line', function()
      local source = line().source
      if source and source ~= vim.NIL then
        vim.cmd.wincmd('p')
        go(source)
      end
    end)
    map(buffer, 'c', 'instruction to blame', function()
      local to = (line().culpritLines or {})[1]
      jump(to and to + 1)
    end)
    map(buffer, 't', 'target of the branch', function()
      local target = line().target
      for at, other in ipairs(answer.lines) do
        if target and target ~= vim.NIL and other.address == target then return jump(at) end
      end
    end)
  end)
end

--- The function that a code lens above the cursor stands for.
local function function_here(use)
  local here = vim.fn.line('.') - 1
  ask('dwell/fileCosts', { textDocument = { uri = vim.uri_from_bufnr(0) } }, function(costs)
    local best
    for _, procedure in ipairs(costs.procedures) do
      if procedure.line <= here and (not best or procedure.line > best.line) then best = procedure end
    end
    if not best then return vim.notify('dwell: no sampled function begins above this line', vim.log.levels.WARN) end
    use(best.id)
  end)
end

local function named_or_here(name, use)
  if name ~= '' then use(name) else function_here(use) end
end

local function calls(title, callees)
  return function(name)
    local params = { callees = callees }
    if name ~= '' then
      params['function'] = name
    else
      params.textDocument = { uri = vim.uri_from_bufnr(0) }
      params.position = { line = vim.fn.line('.') - 1, character = 0 }
    end
    ask('dwell/callers', params, function(answer)
      local items = {}
      for _, row in ipairs(answer.rows) do
        local text = ('%5.1f %%  %s'):format(100 * row.share, row.label)
        for _, site in ipairs(row.sites) do table.insert(items, item(site, text)) end
        if #row.sites == 0 then table.insert(items, item(row.place, text)) end
      end
      fill_quickfix(title .. ' ' .. answer['function'], items)
    end)
  end
end

local function choose_recording(prompt, use)
  ask('dwell/epochs', vim.empty_dict(), function(answer)
    local newest_first = {}
    for at = #answer.epochs, 1, -1 do table.insert(newest_first, answer.epochs[at]) end
    local function told(epoch)
      local name = epoch.name ~= vim.NIL and epoch.name or epoch.id
      return ('%s%s  %s  %s'):format(epoch.shown and '* ' or '', name, epoch.start, epoch.scope)
    end
    vim.ui.select(newest_first, { prompt = prompt, format_item = told }, function(epoch)
      if epoch then use(epoch) end
    end)
  end)
end

--- The subcommands of `:Dwell`, each with what it does for the completion and the help.
M.commands = {
  hot = {
    'hot functions, or those of `image`, `line` or `app`, in the quickfix list',
    function(by)
      by = by ~= '' and by or 'procedure'
      ask('dwell/hotProcedures', { by = by, limit = 200 }, function(answer)
        local items = {}
        for _, row in ipairs(answer.rows) do
          local image = row.image ~= vim.NIL and by ~= 'image' and '  ' .. vim.fs.basename(row.image) or ''
          local text = ('%5.1f %%  %s%s%s'):format(100 * row.share, row.label, image, cycles(row))
          table.insert(items, item(row.location, text, row.id))
        end
        fill_quickfix('Dwell: hot ' .. by, items)
      end)
    end,
    { 'procedure', 'image', 'line', 'app' },
  },
  listing = {
    'instructions of a function, or of the one at the cursor (Enter: source, c: to blame, t: target)',
    function(name)
      -- In a hot list the function is that of the entry.
      local entry = vim.bo.buftype == 'quickfix' and name == '' and vim.fn.getqflist()[vim.fn.line('.')]
      named_or_here(entry and entry.user_data or name, show_listing)
    end,
  },
  summary = {
    'where the cycles go, by cause: of everything, or of a function',
    function(name)
      local params = name ~= '' and { procedure = name } or vim.empty_dict()
      ask('dwell/summary', params, function(answer) show('summary ' .. answer.scope.name, answer.text .. '\n' .. answer.totals) end)
    end,
  },
  callers = { 'who calls a function, or the one at the cursor, in the quickfix list', calls('Dwell: callers of', false) },
  callees = { 'what it calls, likewise', calls('Dwell: called by', true) },
  diff = {
    'functions that changed since the recording to compare with, in the quickfix list',
    function()
      ask('dwell/diff', { all = false }, function(answer)
        local items = {}
        for _, row in ipairs(answer.procedures) do
          table.insert(items, item(nil, ('%s  %s  %s'):format(row.label, row.name, vim.fs.basename(row.image)), row.id))
        end
        fill_quickfix('Dwell: what changed', items)
      end)
    end,
  },
  recordings = {
    'choose the recording that is shown',
    function() choose_recording('Show', function(epoch) command('selectEpochs', { { epoch.id } }, function() end) end) end,
  },
  compare = {
    'choose the recording to compare with; `off` ends it',
    function(off)
      if off == 'off' then return command('compare', { vim.NIL }, function() end) end
      choose_recording('Compare with', function(epoch) command('compare', { { before = { epoch.id } } }, function() end) end)
    end,
    { 'off' },
  },
  record = {
    'record a command and show it',
    function(words)
      if words == '' then return vim.notify('dwell: record: name a command', vim.log.levels.ERROR) end
      local recorded = { command = { 'sh', '-c', words }, cwd = vim.fn.getcwd() }
      command('record', { recorded }, function(done) vim.notify('dwell: recorded as ' .. done.epoch) end)
    end,
  },
  sql = {
    'rows of a query over all recordings (docs/sql.md)',
    function(query)
      ask('dwell/sql', { query = query }, function(answer)
        local lines = { table.concat(vim.tbl_map(function(column) return column.name end, answer.columns), '\t') }
        for _, row in ipairs(answer.rows) do
          local cells = vim.tbl_map(function(value) return value == vim.NIL and '' or tostring(value):gsub('[\n\t]', ' ') end, row)
          table.insert(lines, table.concat(cells, '\t'))
        end
        if answer.more then table.insert(lines, '… more rows') end
        vim.bo[show('sql', table.concat(lines, '\n'))].tabstop = 24
      end)
    end,
  },
  legend = {
    'what the numbers mean',
    function() ask('dwell/legend', vim.empty_dict(), function(answer) show('legend', answer.text) end) end,
  },
}

local function run(given)
  local name, rest = given.args:match('^(%S+)%s*(.-)%s*$')
  local chosen = M.commands[name]
  if not chosen then
    local names = vim.tbl_keys(M.commands)
    table.sort(names)
    return vim.notify('dwell: expected one of ' .. table.concat(names, ', '), vim.log.levels.ERROR)
  end
  chosen[2](rest)
end

local function complete(word, line)
  local before = vim.split(line, '%s+', { trimempty = true })
  local chosen = M.commands[before[2]]
  local words = vim.tbl_keys(M.commands)
  if chosen and (#before > 2 or word == '') then words = chosen[3] or {} end
  table.sort(words)
  return vim.tbl_filter(function(known) return vim.startswith(known, word) end, words)
end

--- A click on `called from …`: the call, or the choice of one.
local function go_to_caller(clicked)
  local known = vim.tbl_filter(function(call) return call.uri ~= vim.NIL end, clicked.arguments[1].calls)
  if #known == 1 then return go(known[1]) end
  vim.ui.select(known, { format_item = function(call) return call.label .. ': ' .. call.details end }, function(call)
    if call then go(call) end
  end)
end

--- The server on the PATH, else the one that was built in the repository that this file is of.
local function server()
  local built = vim.fs.joinpath(vim.fs.dirname(debug.getinfo(1, 'S').source:sub(2)), '../../lsp-server/dist/server.js')
  local is_installed = vim.fn.executable('dwell-lsp') == 1 or not vim.uv.fs_stat(built)
  return is_installed and { 'dwell-lsp', '--stdio' } or { 'node', built, '--stdio' }
end

--- Starts the server for source files and makes `:Dwell`.
---@param options? { cmd?: string[], filetypes?: string[], settings?: table } `cmd` is the server; `settings` are
--- those of lsp-server/PROTOCOL.md, such as `database` and `hints`
function M.setup(options)
  options = options or {}
  vim.lsp.config('dwell', {
    cmd = options.cmd or server(),
    filetypes = options.filetypes or { 'c', 'cpp', 'rust', 'go' },
    root_markers = { '.git' },
    init_options = vim.tbl_extend('force', { hints = 'hot' }, options.settings or {}),
  })
  vim.lsp.enable('dwell')
  vim.lsp.inlay_hint.enable()
  vim.lsp.commands['dwell.showListing'] = function(clicked) show_listing(clicked.arguments[1]) end
  vim.lsp.commands['dwell.goToCaller'] = go_to_caller
  vim.api.nvim_create_user_command('Dwell', run, { nargs = '+', complete = complete, desc = 'Where the cycles have gone' })
end

return M
