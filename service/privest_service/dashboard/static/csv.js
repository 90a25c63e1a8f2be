// Reads csv files in the owner's browser, so that columns can be declared by sight. Nothing is sent.
"use strict";

// Bytes that are read for a first look, and records of these from which types are proposed.
const HEAD = 2 ** 18, SHOWN = 100;

// What stands for a gap in a column of any type, in small letters: as the service has it.
const GAPS = new Set(["", "na", "n/a", "nan", "null", "none"]);

// How values of each type are written. The first type that fits all values is proposed.
const WRITTEN = {
  integer: /^[+-]?\d+$/,
  number: /^[+-]?(\d+[.,]?\d*|[.,]\d+)(e[+-]?\d+)?$/i,
  boolean: /^(true|false)$/i,
};

// How dates are written: with the year first, or in a form that a column declares. A time may follow.
const DATES = {
  "": /^(?<y>\d{4})(?<between>[-/])(?<m>\d{1,2})\k<between>(?<d>\d{1,2})([T ].*)?$/,
  "dd.mm.yyyy": /^(?<d>\d{1,2})\.(?<m>\d{1,2})\.(?<y>\d{4})([T ].*)?$/,
  "mm/dd/yyyy": /^(?<m>\d{1,2})\/(?<d>\d{1,2})\/(?<y>\d{4})([T ].*)?$/,
  "dd/mm/yyyy": /^(?<d>\d{1,2})\/(?<m>\d{1,2})\/(?<y>\d{4})([T ].*)?$/,
};

function isDay(text, form) {
  const { y, m, d } = DATES[form].exec(text)?.groups ?? {};
  const day = new Date(Date.UTC(y, m - 1, d));
  return day.getUTCMonth() === m - 1 && day.getUTCDate() === Number(d);
}

const isGap = (cell) => GAPS.has(cell.toLowerCase());
const isBlank = (cells) => cells.length === 1 && !cells[0].value.trim();

// The text of a file or of its beginning: by its mark, else UTF-8, else as Western Windows has it.
async function textOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const mark = bytes[0] << 8 | bytes[1];
  const marked = { 0xfffe: "utf-16le", 0xfeff: "utf-16be" }[mark];
  if (marked) return new TextDecoder(marked).decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

// The records of a csv text, blank ones too: a spreadsheet counts those. Of each cell the value and where it is.
function* records(text, delimiter) {
  let at = 0;
  while (at < text.length) {
    const cells = [];
    do {
      const start = cells.length ? ++at : at;
      let value = "";
      if (text[at] === '"') {
        let end = text.indexOf('"', ++at);
        while (end >= 0 && text[end + 1] === '"') {
          value += text.slice(at, end + 1);
          at = end + 2;
          end = text.indexOf('"', at);
        }
        if (end < 0) end = text.length;
        value += text.slice(at, end);
        at = end + 1;
      }
      let end = at;
      while (end < text.length && text[end] !== delimiter && text[end] !== "\n" && text[end] !== "\r") end++;
      value += text.slice(at, end);
      at = Math.min(end, text.length);
      cells.push({ value, start, end: at });
    } while (text[at] === delimiter);
    at += text[at] === "\r" && text[at + 1] === "\n" ? 2 : 1;
    yield cells;
  }
}

// The delimiter by which the first line with anything on it has most cells; quotes within cells speak against it.
function delimiterOf(text) {
  const width = (delimiter) => {
    for (const cells of records(text, delimiter)) {
      if (!isBlank(cells)) return cells.filter(({ value }) => !value.includes('"')).length;
    }
    return 0;
  };
  return [",", ";", "\t", "|"].reduce((best, each) => (width(each) > width(best) ? each : best));
}

// The columns of the beginning of a csv file: their names, and the values of the first records.
async function columnsOf(file) {
  const text = await textOf(file.slice(0, HEAD));
  const rows = [];
  for (const cells of records(text, delimiterOf(text))) {
    if (!isBlank(cells)) rows.push(cells.map(({ value }) => value.trim()));
    if (rows.length > SHOWN + 1) break;
  }
  if (file.size > HEAD && rows.length > 2 && rows.length < SHOWN + 2) rows.pop(); // it may be cut
  const [header = [], ...body] = rows.slice(0, SHOWN + 1);
  return header.map((name, place) => ({ name, values: body.map((row) => row[place] ?? "") }));
}

// The distinct values of a column, in the order in which they stand; no gaps.
function valuesOf(text, name) {
  let place = null;
  const found = new Set();
  for (const cells of records(text, delimiterOf(text))) {
    if (isBlank(cells)) continue;
    if (place === null) place = cells.findIndex(({ value }) => value.trim() === name);
    else if (cells[place] && !isGap(cells[place].value.trim())) found.add(cells[place].value.trim());
  }
  return [...found];
}

// A cell by its column's name and its line, as a spreadsheet counts it.
function cellAt(text, name, line) {
  let place = null, here = 0;
  for (const cells of records(text, delimiterOf(text))) {
    here++;
    if (place === null && !isBlank(cells)) place = cells.findIndex(({ value }) => value.trim() === name);
    else if (here === line) return cells[place];
  }
  return undefined;
}

// The forms in which all values of a column are dates.
function formsOf(values) {
  const told = values.filter((value) => !isGap(value));
  return told.length ? Object.keys(DATES).filter((form) => told.every((value) => isDay(value, form))) : [];
}

// The type that is proposed for a column.
function guessed(values) {
  const told = values.filter((value) => !isGap(value));
  if (!told.length) return "number";
  if (formsOf(values).length) return "date";
  return Object.keys(WRITTEN).find((type) => told.every((value) => WRITTEN[type].test(value))) ?? "category";
}
