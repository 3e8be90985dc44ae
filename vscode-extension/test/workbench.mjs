// The workbench in headless Chromium, and what a person does with it. Every wait is for something of our own to be
// there, none is for time to pass. Nothing here knows Dwell.
import { existsSync } from 'node:fs';
import { URLSearchParams } from 'node:url';
import { chromium } from 'playwright-core';

const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** Why no browser can be started here, or nothing. */
export function browserMissing() {
  return existsSync(executablePath) ? undefined : `no ${executablePath} (apt-get install chromium)`;
}

export function launch() {
  return chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
}

/** The name under which the server's workbench knows a path on its disk. */
export function remoteUri(base, path) {
  return `vscode-remote://${new URL(base).host}${path}`;
}

/** Opens a page that runs `module`'s `run()` in the extension host; `hear` gets each line it logs. Resolves to its code. */
export async function runInExtensionHost(browser, { base, folder, extension, module, hear }) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  try {
    const page = await context.newPage();
    let end;
    const ended = new Promise((resolve) => { end = resolve; });
    await page.exposeFunction('codeAutomationExit', end);
    await page.exposeFunction('codeAutomationLog', (_level, words) => hear(words.join(' ')));
    const payload = [['extensionDevelopmentPath', remoteUri(base, extension)], ['extensionTestsPath', remoteUri(base, module)], ['skipWelcome', 'true']];
    // A file stands for the workspace that it describes.
    const opened = folder.endsWith('.code-workspace') ? { workspace: folder } : { folder };
    await page.goto(`${base}/?${new URLSearchParams({ ...opened, payload: JSON.stringify(payload) })}`);
    return await ended;
  } finally {
    await context.close();
  }
}

export class Workbench {
  constructor(page) {
    this.page = page;
    /** Requests that left this machine. */
    this.leaks = [];
  }

  static async open(browser, { base, folder, file, viewport = { width: 1280, height: 800 }, scale = 1 }) {
    const context = await browser.newContext({ viewport, deviceScaleFactor: scale, reducedMotion: 'reduce' });
    const page = await context.newPage();
    // Tests wait for states; a machine that is busy with much else may take its time to reach them.
    page.setDefaultTimeout(120_000);
    const workbench = new Workbench(page);
    page.on('request', (request) => {
      if (!/^(http|ws):\/\/127\.0\.0\.1|^(data|blob|vscode-)/.test(request.url())) workbench.leaks.push(request.url());
    });
    const payload = file ? [['openFile', remoteUri(base, `${folder}/${file}`)]] : [];
    await page.goto(`${base}/?${new URLSearchParams({ folder, payload: JSON.stringify(payload) })}`, { waitUntil: 'domcontentloaded' });
    await page.locator('.monaco-workbench .part.statusbar').waitFor();
    return workbench;
  }

  /** The input of the palette and of every picker. */
  get input() {
    return this.page.locator('.quick-input-widget:visible input[type=text]').first();
  }

  /** A row of the palette or of a picker. */
  row(text) {
    return this.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: text }).first();
  }

  /** Whether the palette offers a command when `typed` is typed; if not, it is closed again. F1 is lost while the workbench
   *  restores, and a palette that did open closes when the workbench then gives the focus to an editor: no wait is long. */
  async offers(title, typed = title) {
    await this.page.keyboard.press('F1');
    if (await succeeds(this.input.fill(`>${typed}`, { timeout: 2000 })) && await appears(this.row(title), 1500)) return true;
    await this.page.keyboard.press('Escape');
    return false;
  }

  /** Runs a command of the palette, whose list is fixed when it opens: one that becomes enabled later is found at another
   *  opening only. By keyboard, since a click on a list that is still being drawn hits another row; and by the input's, since a
   *  palette that closes by itself leaves the keyboard to the editor. */
  async command(title) {
    const focused = this.page.locator('.quick-input-list .monaco-list-row.focused').filter({ hasText: title });
    const chosen = async () => {
      if (!await this.offers(title)) return false;
      for (let rows = 0; rows < 20; rows += 1) {
        if (await focused.count() > 0) return this.enter();
        if (!await succeeds(this.input.press('ArrowDown', { timeout: 2000 }))) return false;
      }
      return false;
    };
    await this.until(`the command "${title}"`, chosen);
    await this.leaveMouse();
    // The command may open another picker in the same place.
    await this.row(title).waitFor({ state: 'hidden' });
  }

  /** Presses Enter in the picker if that is open at the very moment, and returns whether it was. The key of `press` goes to
    * whatever has the focus by then: to an editor that opened late, which closes the picker. */
  enter() {
    const key = { key: 'Enter', code: 'Enter', keyCode: 13, bubbles: true, cancelable: true, composed: true };
    return succeeds(this.input.and(this.page.locator(':focus')).dispatchEvent('keydown', key, { timeout: 2000 }));
  }

  /** Moves the mouse where nothing is: where it rests a tooltip comes up, over what is clicked next. */
  leaveMouse() {
    return this.page.mouse.move(1, 1);
  }

  /** Chooses from a picker by typing: a click on a list that is still being drawn hits another row. */
  async choose(text) {
    await this.row(text).waitFor();
    await this.input.fill(text);
    await this.row(text).waitFor();
    await this.input.press('Enter');
  }

  editor() {
    return this.page.locator('.editor-group-container.active .editor-instance .monaco-editor').first();
  }

  tab(text) {
    return this.page.locator('.tab', { hasText: text }).first();
  }

  statusItem(text) {
    return this.page.locator('.part.statusbar .statusbar-item', { hasText: text }).first();
  }

  /** A view's rows in sight, as screen readers hear them. */
  treeRows(view) {
    return this.pane(view).locator('[role=treeitem]');
  }

  pane(view) {
    return this.page.locator('.pane').filter({ has: this.page.locator('.pane-header', { hasText: view }) });
  }

  /** Chooses from a row's context menu, again if need be: VS Code does not hear a click that comes right after it opened. */
  async chooseFromMenu(row, label) {
    await row.click({ button: 'right' });
    const item = this.page.locator('.monaco-menu').getByText(label);
    await item.waitFor();
    const click = () => item.click({ timeout: 1_000 }).catch(() => undefined).then(() => item.count());
    await this.until(`"${label}" to be chosen`, click, (open) => open === 0);
  }

  /** The document of the webview with that title, wherever VS Code put it. */
  async webviewTitled(title) {
    const named = async () => {
      for (const frame of this.page.frames()) {
        if (await frame.title().catch(() => '') === title) return frame;
      }
      return undefined;
    };
    return this.until(`the page "${title}"`, named);
  }

  /** The document inside the newest webview, which VS Code puts two frames deep. */
  webview() {
    return this.page.frameLocator('iframe.webview.ready').last().frameLocator('#active-frame');
  }

  /** What extensions have drawn after lines in sight: `{line, text}`. It is no text of the page but of generated styles; lines are
   *  placed by their `top`. */
  lineEnds(editor = this.editor()) {
    return editor.evaluate((root) => {
      const numbers = new Map([...root.querySelectorAll('.margin-view-overlays > div')]
        .map((line) => [line.style.top, Number(line.querySelector('.line-numbers')?.textContent)]));
      return [...root.querySelectorAll('.view-lines > .view-line')].flatMap((line) => {
        const drawn = [...line.querySelectorAll('span[class*="ced-"]')].map((span) => globalThis.getComputedStyle(span, '::after').content);
        const text = drawn.filter((content) => content.startsWith('"')).map((content) => JSON.parse(content)).join(' ').replaceAll('\u00a0', ' ').trim();
        return text ? [{ line: numbers.get(line.style.top), text }] : [];
      });
    });
  }

  /** Puts the cursor of the active editor at a line, from 1. */
  async goTo(line, column = 1) {
    await this.page.keyboard.press('Control+1');
    await this.page.keyboard.press('Control+G');
    await this.input.fill(`:${line}:${column}`);
    await this.page.keyboard.press('Enter');
    await this.statusItem(`Ln ${line},`).waitFor();
  }

  lens(text) {
    return this.editor().locator('.codelens-decoration a', { hasText: text }).first();
  }

  /** Cached lenses are drawn as text, and an editor without focus asks for no others; focus makes links of them. */
  async clickLens(text) {
    await this.until(`the lens "${text}" to be a link`, async () => {
      await this.page.keyboard.press('Control+1');
      return appears(this.lens(text), 2000);
    });
    await this.lens(text).click();
  }

  /** Asks until the answer is good. */
  async until(what, ask, good = (answer) => Array.isArray(answer) ? answer.length > 0 : Boolean(answer), ms = 120_000) {
    const end = Date.now() + ms;
    let answer;
    do {
      answer = await ask();
      if (good(answer)) return answer;
      await this.page.waitForTimeout(50);
    } while (Date.now() < end);
    throw new Error(`waited in vain for ${what}; last: ${JSON.stringify(answer)}`);
  }

  /** What the status bar, pickers, dialogs and messages say, for the words of a failure. */
  async says() {
    const places = '.statusbar-item, .quick-input-widget, .monaco-dialog-box, .notification-list-item-message';
    const texts = await this.page.locator(places).filter({ visible: true }).allInnerTexts();
    return JSON.stringify(texts.map((text) => text.trim()).filter((text) => text !== ''));
  }

  shot(path) {
    return this.page.screenshot({ path });
  }

  close() {
    return this.page.context().close();
  }
}

function appears(locator, ms) {
  return succeeds(locator.waitFor({ timeout: ms }));
}

function succeeds(promise) {
  return promise.then(() => true, () => false);
}
