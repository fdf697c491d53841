import { expect, test, vi } from 'vitest';

import { Requests, type Request } from '../src/hosts/requests';

function session(): { requests: Requests; sent: Request[]; interrupts: () => number } {
  const sent: Request[] = [];
  let interrupts = 0;
  const requests = new Requests(
    request => sent.push(request),
    () => (interrupts += 1),
  );
  return { requests, sent, interrupts: () => interrupts };
}

function id(sent: Request[], place: number): string {
  return sent[place]?.id ?? '';
}

test('a request that runs is interrupted at once', () => {
  const { requests, sent, interrupts } = session();
  void requests.request('change', {});
  requests.receive({ id: id(sent, 0), kind: 'begun' });
  requests.cancel();
  expect(interrupts()).toBe(1);
});

test('a request that has not begun is interrupted when it does', () => {
  const { requests, sent, interrupts } = session();
  void requests.request('change', {});
  void requests.request('change', {});
  requests.cancel();
  expect(interrupts()).toBe(0);
  requests.receive({ id: id(sent, 0), kind: 'begun' });
  expect(interrupts()).toBe(1);
  requests.receive({ id: id(sent, 1), kind: 'begun' });
  expect(interrupts()).toBe(2);
});

test('what was asked after a cancel is not interrupted', async () => {
  const { requests, sent, interrupts } = session();
  const first = requests.request('change', {});
  requests.cancel();
  requests.receive({ id: id(sent, 0), kind: 'begun' });
  requests.receive({ id: id(sent, 0), kind: 'error', error: { title: 'Cancelled', message: '', cancelled: true } });
  await expect(first).rejects.toMatchObject({ cancelled: true });
  const second = requests.request('change', {});
  requests.receive({ id: id(sent, 1), kind: 'begun' });
  requests.receive({ id: id(sent, 1), kind: 'result', value: 3 });
  await expect(second).resolves.toBe(3);
  expect(interrupts()).toBe(1);
});

test('an interrupt that was lost is sent again where the request goes on', () => {
  vi.useFakeTimers();
  const { requests, sent, interrupts } = session();
  const step = { id: id(sent, 0), kind: 'progress', text: 'timing', done: 1, of: 2 } as const;
  void requests.request('change', {});
  const reply = { ...step, id: id(sent, 0) };
  requests.receive({ id: reply.id, kind: 'begun' });
  requests.receive(reply);
  requests.cancel();
  requests.receive(reply); // on its way already
  expect(interrupts()).toBe(1);
  vi.advanceTimersByTime(1500);
  requests.receive(reply);
  expect(interrupts()).toBe(2);
  vi.useRealTimers();
});

test('what comes of a cancelled request all the same is not shown', async () => {
  const { requests, sent } = session();
  const late = requests.request('change', {});
  requests.receive({ id: id(sent, 0), kind: 'begun' });
  requests.cancel(); // and Python drops the interrupt
  requests.receive({ id: id(sent, 0), kind: 'result', value: 3 });
  await expect(late).rejects.toMatchObject({ cancelled: true });
});
