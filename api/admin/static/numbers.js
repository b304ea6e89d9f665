// Readable numbers, formatted as in api/admin/format.py.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value) {
  return WHOLE.format(value);
}

/** From milliseconds: 8.2 ms, 182 ms, 1.21 s, 14.0 s. */
export function duration(ms) {
  if (ms < 1000) return ms < 10 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(0)} ms`;
  return ms < 10_000 ? `${(ms / 1000).toFixed(2)} s` : `${(ms / 1000).toFixed(1)} s`;
}

export function percent(share) {
  const value = Math.round(share * 1000) / 10;
  return `${(value > 0 && value < 10) || (value > 99 && value < 100) ? value.toFixed(1) : value.toFixed(0)}%`;
}

export function plural(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes: 812 B, 9.3 KiB, 42 MiB. */
export function size(bytes) {
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : WHOLE.format(value)} ${UNITS[unit]}`;
}
