// Of overlapping questions the last one counts.

/** Who waits for any of them waits until the newest is answered. */
export class Newest {
  private asked: Promise<void> = Promise.resolve();

  /** Hands `use` what `ask` brings, unless something newer was asked meanwhile. `ask` does not reject. */
  ask<Answer>(ask: () => Promise<Answer>, use: (answer: Answer) => void | Promise<void>): Promise<void> {
    const own: Promise<void> = ask().then((answer) => this.asked === own ? use(answer) : this.asked);
    this.asked = own;
    return own;
  }
}
