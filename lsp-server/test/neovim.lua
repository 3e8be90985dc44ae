-- Neovim with the plug-in of neovim/: nvim -l neovim.lua SERVER FILE DATABASE HOT_LINE PROCEDURE_LINE
local server, file, database = arg[1], arg[2], arg[3]
local hot_line, procedure_line = tonumber(arg[4]), tonumber(arg[5])
local passed = 0

local function check(name, value)
  if not value then
    io.stdout:write('not ok - ' .. name .. '\n')
    vim.cmd('cquit 1')
  end
  passed = passed + 1
  io.stdout:write('ok - ' .. name .. '\n')
end

local function comes(condition) return vim.wait(15000, condition, 20) end

-- Set up as README.md says, then told where the server and the database of this test are.
local folder = vim.fs.dirname(vim.fs.dirname(server))
local readme = io.open(vim.fs.joinpath(folder, 'README.md')):read('a')
local setup = load((readme:match('```lua\n(.-)```'):gsub('/path/to/dwell', vim.fs.dirname(folder))))
check('the README has a setup', setup)
setup()
check('the built server is found', vim.fn.executable('dwell-lsp') == 1 or vim.uv.fs_realpath(vim.lsp.config.dwell.cmd[2]) == vim.uv.fs_realpath(server))
local news = 0
vim.lsp.config('dwell', {
  cmd = { 'node', server, '--stdio' },
  init_options = { database = database, hints = 'all' },
  capabilities = vim.tbl_deep_extend('force', vim.lsp.protocol.make_client_capabilities(),
    { experimental = { dwell = { profileDidChange = true } } }),
  handlers = { ['dwell/profileDidChange'] = function() news = news + 1 end },
})
vim.cmd.edit(file)
vim.bo.filetype = 'c'
check('the client starts', comes(function() return #vim.lsp.get_clients({ name = 'dwell' }) == 1 end))
local client = vim.lsp.get_clients({ name = 'dwell' })[1]
local code = vim.api.nvim_get_current_buf()
check('it is initialized', comes(function() return client.initialized end))
check('UTF-16 is agreed', client.offset_encoding == 'utf-16')
check('Dwell is announced', client.server_capabilities.experimental.dwell.version == 1)

local function request(method, params)
  local answer = client:request_sync(method, params, 15000, code)
  return answer and answer.result, answer and answer.err
end
local document = { uri = vim.uri_from_bufnr(0) }

local function hints() return vim.lsp.inlay_hint.get({ bufnr = 0 }) end
local function hot_hint()
  for _, hint in ipairs(hints()) do
    if hint.inlay_hint.label:find('^[%d.]+ %%') and tonumber(hint.inlay_hint.label:match('^[%d.]+')) > 50 then
      return hint.inlay_hint
    end
  end
end
vim.lsp.inlay_hint.enable(true, { bufnr = 0 })
check('inlay hints are drawn', comes(function() return #hints() > 0 end))
check('the stalled line has the greatest', hot_hint().position.line == hot_line)

vim.api.nvim_buf_set_lines(0, 0, 0, false, { '// one more line' })
check('hints move with their lines', comes(function()
  local hint = hot_hint()
  return hint and hint.position.line == hot_line + 1
end))
vim.cmd('silent undo')
check('and back', comes(function()
  local hint = hot_hint()
  return hint and hint.position.line == hot_line
end))

vim.lsp.codelens.refresh({ bufnr = 0 })
check('a code lens stands above the procedure', comes(function()
  local lenses = vim.lsp.codelens.get(0)
  return #lenses == 1 and lenses[1].range.start.line == procedure_line
end))
local lens = vim.lsp.codelens.get(0)[1].command

local hover = request('textDocument/hover', { textDocument = document, position = { line = hot_line, character = 4 } })
check('a hover tells the cost', hover and hover.contents.value:find('of all time', 1, true))

client:exec_cmd(lens, { bufnr = code })
check('the lens opens the listing', comes(function()
  return vim.api.nvim_get_current_buf() ~= code and vim.fn.search('best case', 'nw') > 0
end))

local said = {}
vim.notify = function(message) table.insert(said, message) end
--- The pattern alone would not tell whether the window of an earlier answer still has the focus.
local function shows(title, pattern)
  return comes(function()
    return vim.api.nvim_buf_get_name(0):find('dwell://' .. title, 1, true) and vim.fn.search(pattern, 'nw') > 0
  end)
end

vim.api.nvim_set_current_buf(code)
vim.cmd('Dwell hot')
check('hot functions fill the quickfix list', comes(function() return #vim.fn.getqflist() > 0 end))
local entry = vim.fn.getqflist()[1]
check('with their share and place', entry.text:find('%d %%  chase') and entry.lnum == procedure_line + 1 and entry.bufnr == code)
check('the list is open', vim.bo.buftype == 'quickfix')
vim.cmd('Dwell listing')
check('an entry has a listing', shows('chase', 'best case'))
check('which is not changed', not vim.bo.modifiable)
vim.fn.search('\\<mov\\>')
vim.api.nvim_feedkeys('\r', 'x', false)
check('Enter leads to the source', vim.api.nvim_get_current_buf() == code)
vim.api.nvim_win_set_cursor(0, { hot_line + 1, 0 })
vim.cmd('Dwell listing')
check('so does the cursor to the listing', shows('chase', 'best case'))
vim.cmd('Dwell summary')
check('a summary is shown', shows('summary', 'Dynamic\\|dynamic'))
vim.cmd('Dwell legend')
check('the legend is shown', shows('legend', 'cycles per instruction'))
vim.cmd('Dwell sql SELECT count(*) AS recordings, NULL AS nothing FROM epochs')
check('a query is answered', shows('sql', '^recordings\tnothing$') and vim.fn.getline(2) == '1\t')
vim.ui.select = function(choices, _, use) use(choices[1]) end
vim.cmd('Dwell recordings')
check('a recording is chosen', comes(function() return news > 0 end))
vim.cmd('Dwell nonsense')
check('what is unknown is said', said[#said]:find('expected one of callees, callers, compare', 1, true))
vim.cmd('Dwell listing no such function')
check('an error too', comes(function() return said[#said]:find('no such function', 1, true) end))
check('words are completed', vim.deep_equal(vim.fn.getcompletion('Dwell ho', 'cmdline'), { 'hot' })
  and vim.deep_equal(vim.fn.getcompletion('Dwell hot im', 'cmdline'), { 'image' }))
vim.api.nvim_set_current_buf(code)

local listing = request('workspace/executeCommand', { command = 'dwell.server.listing', arguments = lens.arguments })
check('its lines know their sources', #listing.lines > 5)
local hot = request('dwell/hotProcedures', {})
check('hot procedures are ranked', hot and hot.rows[1].label == 'chase')
local epochs = request('dwell/epochs', {})
check('epochs are listed', epochs and #epochs.epochs == 1 and epochs.selected[1] == epochs.epochs[1].id)
local before = news
request('workspace/executeCommand', { command = 'dwell.server.selectEpochs', arguments = { { epochs.epochs[1].id } } })
check('a selection is news', comes(function() return news > before end))
local _, err = request('dwell/listing', { procedure = 'no such' })
check('an error is one line', err and err.message:find('no such', 1, true) and not err.message:find('\n'))

client:stop()
check('the server stops', comes(function() return client:is_stopped() end))
io.stdout:write(passed .. ' passed, 0 failed, 0 skipped\n')
vim.cmd('qall!')
