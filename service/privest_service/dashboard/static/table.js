// The form by which a table is declared: its columns are read here, in the owner's browser, and sent by its owner alone.
"use strict";

const ORDERED = new Set(["number", "integer", "date"]);

// Most wrong cells of a column that are mended here, one by one; for more a spreadsheet is better.
const FEW = 5;

// A number as its owner writes it, perhaps with a decimal comma; any other text is for the service to refuse.
function numeric(text) {
  const plain = /^[+-]?\d*,\d+$/.test(text) && !/^[+-]?[1-9]\d{0,2},\d{3}$/.test(text) ? text.replace(",", ".") : text;
  return plain && Number.isFinite(Number(plain)) ? Number(plain) : text;
}

// One column: its row of the form, and what the owner says in it.
class ColumnRow {
  constructor(template, { name, values = [] }, change) {
    this.name = name;
    this.element = template.content.firstElementChild.cloneNode(true);
    this.element.setAttribute("aria-label", name || "a column without a name");
    this.find("bdi").textContent = name || "(no name)";
    const seen = [...new Set(values.filter((value) => !isGap(value)))];
    if (seen.length) this.find("[data-sample]").textContent = seen.slice(0, 3).join(" · ") + (seen.length > 3 ? " …" : "");
    this.find("[data-gaps]").hidden = !values.some(isGap);
    this.part("type").value = guessed(values);
    const forms = formsOf(values);
    this.part("format").value = forms[0] ?? "";
    this.find("[data-which]").hidden = forms.length < 2;
    this.element.addEventListener("change", change);
    this.show();
  }

  find(selector) { return this.element.querySelector(selector); }
  part(name) { return this.find(`[data-part=${name}]`); }
  said(name) { return this.part(name).value.trim(); }
  get taken() { return this.part("take").checked && !this.part("take").disabled; }

  // Shows what belongs to the type and to the choice of what a gap is.
  show() {
    const type = this.said("type"), own = this.find("option[value=category][data-own]");
    own.disabled = own.hidden = ORDERED.has(type);
    if (own.disabled && own.selected) this.part("missing").value = "refused";
    for (const field of this.element.querySelectorAll("[data-of]")) {
      field.hidden = !field.dataset.of.split(" ").some((each) => each === type || each === this.said("missing"));
    }
    this.find("[data-choices]").hidden = !this.taken;
    this.part("categories").required = this.taken && type === "category";
    this.part("fill").required = this.taken && this.said("missing") === "filled";
    for (const end of ["low", "high", "fill"]) this.part(end).placeholder = type === "date" ? "2007-01-31" : "";
  }

  // The column as a schema has it.
  get declared() {
    const type = this.said("type"), found = { name: this.name, type, missing: this.said("missing") };
    const value = type === "number" || type === "integer" ? numeric : (text) => text;
    if (ORDERED.has(type)) for (const end of ["low", "high"]) if (this.said(end)) found[end] = value(this.said(end));
    if (type === "date" && this.said("format")) found.format = this.said("format");
    if ((type === "number" || type === "integer") && this.said("number_format")) found.number_format = this.said("number_format");
    if (type === "category") found.categories = this.said("categories").split("\n").map((each) => each.trim()).filter(Boolean);
    if (type === "category" && this.said("reference")) found.reference = this.said("reference");
    if (found.missing === "filled") {
      const fill = this.said("fill");
      found.fill = type === "boolean" ? { true: true, false: false }[fill.toLowerCase()] ?? fill : value(fill);
    }
    return found;
  }

  // Takes over what was said of a column of this name.
  choose({ type, missing, low = "", high = "", categories = [], reference = "", fill = "", format = "", number_format = "" }) {
    const said = { type, missing, low, high, categories: categories.join("\n"), reference, fill, format, number_format };
    for (const [name, value] of Object.entries(said)) this.part(name).value = value;
    this.show();
  }

  blame(rule) {
    const fault = this.find("[data-fault]");
    fault.hidden = !rule;
    fault.firstElementChild.textContent = rule ?? "";
    this.element.classList.toggle("bad", Boolean(rule));
    this.find("[data-mend]").replaceChildren();
  }
}

class TableForm {
  constructor(form) {
    this.form = form;
    this.part = form.querySelector("[data-table]");
    this.rows = [];
    this.mends = new Map(); // what is written instead of a cell, by where that begins in the file's text
    this.text = null; // of the whole file, once it was needed
    this.find("[data-json]").hidden = true;
    this.find("[data-start]").hidden = false;
    form.elements.schema.required = false;
    form.elements.file.addEventListener("change", () => this.look());
    form.addEventListener("formdata", ({ formData }) => this.fill(formData));
    form.addEventListener("refused", () => this.blame());
    this.find("[data-unit]").addEventListener("change", () => this.show());
    this.find("[data-names]").addEventListener("change", () => this.build(this.named()));
    this.find("[data-every]").addEventListener("click", () => this.takeAll(true));
    this.find("[data-none]").addEventListener("click", () => this.takeAll(false));
    if (form.elements.file.files.length) this.look(); // as after a way back
  }

  find(selector) { return this.part.querySelector(selector); }
  get file() { return this.form.elements.file.files[0]; }

  async look() {
    this.text = null;
    this.mends.clear();
    if (!this.file) return;
    const csv = /\.(csv|tsv|txt)$/i.test(this.file.name);
    this.find("[data-byhand]").hidden = csv;
    this.build(csv ? await columnsOf(this.file) : this.named());
  }

  // Columns that the owner names, of a file that is not read here.
  named() {
    return this.find("[data-names]").value.split("\n").map((name) => ({ name: name.trim() })).filter(({ name }) => name);
  }

  // The form for these columns; what was said of columns of the same names stays.
  build(columns) {
    const said = new Map(this.rows.map((row) => [row.name, row]));
    const count = (name) => columns.filter((each) => each.name === name).length;
    this.rows = columns.map((column) => {
      const row = new ColumnRow(this.find("template"), column, () => this.show());
      const before = said.get(column.name), take = row.part("take");
      if (before) { row.choose(before.declared); take.checked = before.part("take").checked; }
      row.blocked = !column.name || count(column.name) > 1;
      take.checked &&= !row.blocked;
      if (row.blocked) row.find("[data-sample]").textContent = column.name ? "in the file more than once" : "name it in the file to use it";
      row.find("[data-read]").addEventListener("click", () => this.readCategories(row));
      return row;
    });
    this.find(".columns").replaceChildren(...this.rows.map((row) => row.element));
    const unit = this.find("[data-unit]"), chosen = unit.value;
    unit.replaceChildren(unit.options[0], ...this.rows.filter(({ blocked }) => !blocked).map(({ name }) => new Option(name, name)));
    unit.value = this.rows.some(({ name }) => name === chosen) ? chosen : "";
    this.find("[data-columns]").hidden = !this.rows.length;
    this.show();
  }

  show() {
    const unit = this.find("[data-unit]").value;
    this.find("[data-rows]").hidden = !unit;
    for (const row of this.rows) {
      row.part("take").disabled = row.blocked || row.name === unit;
      row.show();
    }
    const taken = this.rows.filter((row) => row.taken).length;
    this.find("[data-count]").textContent = `${taken} of ${this.rows.length} columns are stored`;
  }

  takeAll(checked) {
    for (const row of this.rows) row.part("take").checked = checked && !row.blocked;
    this.show();
  }

  async whole() {
    this.text ??= await textOf(this.file);
    return this.text;
  }

  async readCategories(row) {
    row.part("categories").value = valuesOf(await this.whole(), row.name).join("\n");
  }

  get columns() { return this.rows.filter((row) => row.taken); }

  // What is sent: the schema that the form says, and the file with the cells that were mended.
  fill(formData) {
    if (!this.rows.length) return;
    const unit = this.find("[data-unit]").value, schema = { kind: "table", columns: this.columns.map((row) => row.declared) };
    if (unit) schema.unit = { column: unit, rows: numeric(this.find("[data-rows] input").value) };
    formData.set("schema", JSON.stringify(schema));
    if (this.mends.size) formData.set("file", new File([this.mended()], this.file.name));
  }

  mended() {
    let text = "", at = 0;
    for (const [start, { end, value }] of [...this.mends].sort(([a], [b]) => a - b)) {
      text += `${this.text.slice(at, start)}"${value.replaceAll('"', '""')}"`;
      at = end;
    }
    return text + this.text.slice(at);
  }

  // Puts each fault beside the column that it is about.
  blame() {
    const columns = this.columns;
    for (const row of this.rows) row.blame(null);
    for (const told of document.querySelectorAll("#problem tr[data-rule]")) {
      const { field, location, rule } = told.dataset;
      const row = this.rows.find(({ name }) => name && name === field) ?? columns[/^(?:schema\.)?columns\.(\d+)/.exec(location)?.[1]];
      if (!row) continue;
      row.blame(rule);
      row.element.id ||= `column-${this.rows.indexOf(row)}`;
      const link = Object.assign(document.createElement("a"), { href: `#${row.element.id}`, textContent: row.name });
      told.cells[0].replaceChildren(link);
      const [, count, line] = /(\d+) (?:missing|rows?).*\(first in line (\d+)\)/.exec(rule) ?? [];
      if (count <= FEW) this.offer(row, Number(line));
    }
  }

  // Lets the owner write another value into a cell that is wrong, without leaving the page.
  async offer(row, line) {
    const cell = cellAt(await this.whole(), row.name, line);
    if (!cell) return;
    const mend = this.find("[data-mending]").content.firstElementChild.cloneNode(true), input = mend.querySelector("input");
    mend.querySelector("span").textContent = `Write into line ${line} instead`;
    input.value = this.mends.get(cell.start)?.value ?? cell.value;
    input.addEventListener("input", () => this.mends.set(cell.start, { end: cell.end, value: input.value }));
    row.find("[data-mend]").replaceChildren(mend);
  }
}

for (const form of document.querySelectorAll("form:has([data-table])")) new TableForm(form);
