/* A translation, looked into: its alternatives, its probabilities, its attention.
   `nmt serve`, `nmt attention --html` and notebooks show the same; the data are those of
   `explorer_data`. Text goes into the page as text only: what a model writes is not to be
   trusted. */

const EXPLORER_TEXTS = {
  en: {
    translations: "Best translations",
    score: "score {score}",
    scoreHelp: "The score is the log-probability, divided by a power of the length: the nearer "
      + "to 0, the better. A wider beam finds more translations.",
    choose: " Choose one to look into it.",
    probabilities: "Probability of each token",
    probabilitiesHelp: "How likely the model thought each token was, given the source and the "
      + "tokens before it. A low number often marks a doubtful place. ▁ stands for a space, </s> "
      + "for the end, <s> for the start.",
    probability: "{token}: {percent}",
    truncated: "The model found no end: this translation was stopped at the length limit.",
    attention: "Attention",
    kind: "Kind of attention",
    cross: "cross: target → source",
    encoder: "encoder: source → source",
    decoder: "decoder: target → target",
    crossHelp: "Cross-attention: which source tokens the decoder looked at when it predicted a "
      + "target token.",
    encoderHelp: "Self-attention of the encoder: which source tokens it looked at to describe a "
      + "source token.",
    decoderHelp: "Self-attention of the decoder: which tokens, of those it had read so far, it "
      + "looked at when it predicted the next one. It starts from <s> and sees nothing that comes "
      + "later.",
    layer: "Layer",
    head: "Head",
    mean: "mean of all",
    numbers: "numbers",
    hint: "Point at a token or a cell, or press Tab and the arrow keys. ↑ and ↓ follow the "
      + "strongest attention.",
    crossKeys: "Looked at: source",
    crossQueries: "Predicted: target",
    encoderKeys: "Looked at: source",
    encoderQueries: "Described: source",
    decoderKeys: "Looked at: read so far",
    decoderQueries: "Predicted: target",
    crossCell: "When predicting “{query}”, {weight} of the attention was on “{key}”.",
    encoderCell: "To describe “{query}”, {weight} of the attention was on “{key}”.",
    decoderCell: "When predicting “{query}”, {weight} of the attention was on “{key}”.",
    masked: "When predicting “{query}”, “{key}” had not been read yet.",
    crossQuery: "When predicting “{query}”, the model looked at {tokens}.",
    encoderQuery: "To describe “{query}”, the model looked at {tokens}.",
    decoderQuery: "When predicting “{query}”, the model looked at {tokens}.",
    crossKey: "“{key}” got the largest shares when predicting {tokens}.",
    encoderKey: "“{key}” got the largest shares to describe {tokens}.",
    decoderKey: "“{key}” got the largest shares when predicting {tokens}.",
    grid: "All weights: a row for each token below, a column for each token looked at",
    heads: "All heads",
    order: "Order",
    byLayer: "layer by layer",
    byEntropy: "entropy, lowest first",
    byAlignment: "most like an alignment first",
    headsHelp: "Entropy, in nats: 0 if a head looks at one token at a time, high if it spreads "
      + "its attention.",
    alignmentHelp: " Alignment, from 0 to 1: how far a head agrees with the mean of all heads, "
      + "apart from what is the same for every token. Heads that agree with each other tend to align "
      + "words.",
    headName: "Layer {layer}, head {head}",
    entropy: "entropy {value}",
    alignment: "alignment {value}",
    named: "“{token}” ({percent})",
    comma: ", ",
    none: "This translation carries no attention.",
  },
  zh: {
    translations: "最佳译文",
    score: "得分 {score}",
    scoreHelp: "得分是对数概率除以长度的幂，越接近 0 越好。束宽越大，候选译文越多。",
    choose: "选择其中一个，查看它的内部。",
    probabilities: "每个词元的概率",
    probabilitiesHelp: "在给定原文和前面词元的情况下，模型认为每个词元有多大可能。"
      + "数值低的地方往往不可靠。▁ 表示空格，</s> 表示结束，<s> 表示开始。",
    probability: "{token}：{percent}",
    truncated: "模型没有找到结尾：译文在达到长度上限时停止。",
    attention: "注意力",
    kind: "注意力的种类",
    cross: "交叉：译文 → 原文",
    encoder: "编码器：原文 → 原文",
    decoder: "解码器：译文 → 译文",
    crossHelp: "交叉注意力：解码器预测每个译文词元时，看了哪些原文词元。",
    encoderHelp: "编码器的自注意力：编码器表示每个原文词元时，看了哪些原文词元。",
    decoderHelp: "解码器的自注意力：预测下一个词元时，看了已读入词元中的哪些。"
      + "解码从 <s> 开始，后面的词元是看不到的。",
    layer: "层",
    head: "头",
    mean: "全部平均",
    numbers: "显示数字",
    hint: "将指针移到词元或单元格上，或使用 Tab 键和方向键。↑ 和 ↓ 会沿着最强的注意力移动。",
    crossKeys: "被注意：原文",
    crossQueries: "预测：译文",
    encoderKeys: "被注意：原文",
    encoderQueries: "表示：原文",
    decoderKeys: "被注意：已读入的词元",
    decoderQueries: "预测：译文",
    crossCell: "预测“{query}”时，{weight} 的注意力在“{key}”上。",
    encoderCell: "表示“{query}”时，{weight} 的注意力在“{key}”上。",
    decoderCell: "预测“{query}”时，{weight} 的注意力在“{key}”上。",
    masked: "预测“{query}”时，还没有读入“{key}”。",
    crossQuery: "预测“{query}”时，模型主要看了{tokens}。",
    encoderQuery: "表示“{query}”时，模型主要看了{tokens}。",
    decoderQuery: "预测“{query}”时，模型主要看了{tokens}。",
    crossKey: "“{key}”在预测这些词元时最受注意：{tokens}。",
    encoderKey: "“{key}”在表示这些词元时最受注意：{tokens}。",
    decoderKey: "“{key}”在预测这些词元时最受注意：{tokens}。",
    grid: "全部权重：每行是下方的一个词元，每列是一个被注意的词元",
    heads: "所有注意力头",
    order: "排序",
    byLayer: "按层",
    byEntropy: "熵从低到高",
    byAlignment: "最像词对齐的在前",
    headsHelp: "熵的单位是奈特：每次只看一个词元时为 0，注意力越分散，熵越高。",
    alignmentHelp: "对齐，从 0 到 1：去掉对每个词元都相同的部分后，一个头与所有头的平均有多一致。"
      + "彼此一致的头往往在做词对齐。",
    headName: "第 {layer} 层，第 {head} 头",
    entropy: "熵 {value}",
    alignment: "对齐 {value}",
    named: "“{token}”（{percent}）",
    comma: "、",
    none: "这个译文不带注意力。",
  },
};

const KINDS = ["cross", "encoder", "decoder"];
const STRONG = 0.5; // text on a stronger weight takes the other colour
const SHOWN = 0.05; // weaker weights get no line and no number
const NAMED = 3; // tokens that a sentence about a token names

function element(tag, content = "", properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...[content].flat());
  return made;
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => element("option", text, { value })));
  const known = entries.some(([value]) => String(value) === String(chosen));
  select.value = known ? chosen : entries[0][0];
}

/* Han characters say their language: for the right glyphs, and for those who listen. */
function literal(tag, text, properties = {}) {
  return element(tag, text, { ...properties, lang: /\p{Script=Han}/u.test(text) ? "zh" : "" });
}

/* The mark of the end is no text. */
function marked(tokens, ended) {
  return tokens.map((text, index) => (
    { text, special: ended && index === tokens.length - 1 && text === "</s>" }));
}

/* The weights (query × key) of one layer and head, or the mean over them. */
function chosenWeights(weights, layer, head) {
  const layers = layer === "mean" ? weights : [weights[layer]];
  const maps = layers.flatMap((heads) => (head === "mean" ? heads : [heads[head]]));
  return maps[0].map((row, q) => row.map((_, k) =>
    maps.reduce((sum, map) => sum + map[q][k], 0) / maps.length));
}

function header(scope, { text, special }) {
  return element("th", [literal("bdi", text)], { scope, className: special ? "special" : "" });
}

function paint(place, weight) {
  place.classList.add("weighted");
  place.classList.toggle("strong", weight > STRONG);
  place.style.setProperty("--w", weight);
}

function clearPaint(place) {
  place.classList.remove("weighted", "strong");
}

function focusOn(places, index) {
  places[Math.max(0, Math.min(places.length - 1, index))].focus();
}

/* Of the places that the arrow keys move among, the last one focused is a stop of the Tab key. */
function keepOneStop(container) {
  container.addEventListener("focusin", ({ target }) => {
    for (const each of container.querySelectorAll("[tabindex='0']")) each.tabIndex = -1;
    target.tabIndex = 0;
  });
}

class AttentionExplorer {
  constructor(root, language = "en") {
    this.data = null; // the translation
    this.place = 0; // of what was chosen, among it and its alternatives
    this.kind = "cross"; // as it was chosen
    this.layer = null; // from 0, or "mean"; null: the last
    this.head = "mean"; // from 0, or "mean"
    this.order = "byLayer";
    this.point = null; // { query, key }; one of them null: a token, not a cell
    this.build(root);
    this.listen();
    this.speak(language);
  }

  /* Show a translation; if it has no attention, `note()` says why. `more()` asks for what it does
     not have yet, of other kinds or alternatives; the same translation is then shown again. */
  show(data, note = () => this.say("none"), more = null) {
    if (data.source !== this.data?.source || data.text !== this.data.text) {
      this.place = 0;
      this.point = null;
    }
    Object.assign(this, { data, note, more });
    this.draw();
  }

  get hypotheses() {
    return [this.data, ...this.data.alternatives];
  }

  get shown() {
    const chosen = this.hypotheses[this.place];
    return chosen?.attention ? chosen : this.data;
  }

  get shownKind() {
    return this.shown.attention[this.kind] ? this.kind : "cross";
  }

  speak(language) {
    this.language = language;
    this.percents = new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 });
    this.draw();
  }

  say(name, values = {}) {
    const text = EXPLORER_TEXTS[this.language][name];
    return text.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
  }

  percent(value) {
    return this.percents.format(value);
  }

  /* ---- The parts ---- */

  build(root) {
    const part = (name, tag, content, properties) => {
      this[name] = element(tag, content, properties);
      return this[name];
    };
    const text = (tag, name, className = "") => {
      const made = element(tag, "", { className });
      made.dataset.say = name;
      return made;
    };
    const kinds = KINDS.map((kind) => {
      const radio = element("input", "", { type: "radio", name: "kind", value: kind });
      return element("label", [radio, text("span", kind)]);
    });
    root.classList.add("explorer");
    root.append(
      element("div", [
        element("section", [
          text("h2", "translations"),
          part("nbest", "ol", "", { className: "nbest" }),
          element("p", [text("span", "scoreHelp"), text("span", "choose", "choose")],
            { className: "muted" }),
        ]),
        element("section", [
          text("h2", "probabilities"),
          part("tokens", "ul", "", { className: "tokens" }),
          text("p", "probabilitiesHelp", "muted"),
        ]),
      ], { className: "result" }),
      part("details", "details", [
        text("summary", "attention"),
        element("div", [
          part("without", "p", "", { className: "without" }),
          part("map", "section", [
            part("kinds", "fieldset", [
              element("div", kinds, { className: "row" }),
            ]),
            part("help", "p", "", { className: "muted" }),
            element("div", [
              element("label", [text("span", "layer"), part("layers", "select", "",
                { className: "layer" })]),
              element("label", [text("span", "head"), part("headChoice", "select", "",
                { className: "head" })]),
              element("label", [part("numbers", "input", "",
                { type: "checkbox", className: "numbers" }), text("span", "numbers")]),
            ], { className: "row" }),
            element("div", [
              part("flow", "div", [
                part("lines", "div", ""),
                element("div", [part("keysName", "p", "", { className: "muted" }),
                  part("keys", "ul", "", { className: "tokens keys" })]),
                element("div", [part("queriesName", "p", "", { className: "muted" }),
                  part("queries", "ul", "", { className: "tokens queries" })]),
              ], { className: "flow" }),
              element("div", [part("heatmap", "table", "", { className: "heatmap" })],
                { className: "scroll" }),
            ], { className: "views" }),
            part("readout", "p", "", { className: "readout" }),
            element("section", [
              text("h2", "heads"),
              element("div", [element("label", [text("span", "order"), part("orders", "select", "",
                { className: "order" })])], { className: "row" }),
              part("heads", "ol", "", { className: "heads" }),
              element("p", [text("span", "headsHelp"),
                text("span", "alignmentHelp", "alignment")], { className: "muted" }),
            ]),
          ]),
        ]),
      ], { open: true }),
    );
    this.root = root;
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.lines.replaceWith(this.svg);
    this.readout.setAttribute("aria-live", "polite");
    this.heatmap.setAttribute("role", "grid");
    this.kinds.setAttribute("role", "radiogroup");
    for (const row of [this.keys, this.queries]) row.setAttribute("role", "listbox");
  }

  /* ---- What is shown ---- */

  draw() {
    if (!this.data) return;
    for (const each of this.root.querySelectorAll("[data-say]")) {
      each.textContent = this.say(each.dataset.say);
    }
    this.drawHypotheses();
    this.drawProbabilities();
    const { attention } = this.shown;
    this.without.hidden = Boolean(attention);
    this.without.textContent = attention ? "" : this.note();
    this.map.hidden = !attention;
    if (attention) this.drawAttention();
  }

  drawHypotheses() {
    const { hypotheses, shown } = this;
    const choosable = hypotheses.length > 1 && Boolean(this.data.attention)
      && (this.more || hypotheses.every(({ attention }) => attention));
    const items = [...this.nbest.children];
    const focused = items.findIndex((item) => item.contains(document.activeElement));
    this.root.querySelector(".choose").hidden = !choosable;
    this.nbest.replaceChildren(...hypotheses.map((each, place) => {
      const text = literal(choosable ? "button" : "span", each.text, { className: "text" });
      if (choosable) {
        text.type = "button";
        text.setAttribute("aria-pressed", String(each === shown));
        text.addEventListener("click", () => this.choose(place));
      }
      const score = this.say("score", { score: each.score === null ? "?" : each.score.toFixed(2) });
      return element("li", [text, element("span", score, { className: "muted" })]);
    }));
    this.nbest.children[focused]?.querySelector("button")?.focus();
  }

  choose(place) {
    this.place = place;
    this.point = null;
    if (this.hypotheses[place].attention) this.draw();
    else this.more();
  }

  drawProbabilities() {
    const { target_tokens: targets, probabilities, truncated } = this.shown;
    this.tokens.replaceChildren(...marked(targets, !truncated).map((token, index) => {
      const probability = probabilities[index] ?? 0;
      const percent = this.percent(probability);
      const item = this.token(token, percent);
      item.classList.add("sure");
      item.title = this.say("probability", { token: token.text, percent });
      item.style.setProperty("--p", probability.toFixed(3));
      return item;
    }));
    if (truncated) this.tokens.append(element("li", this.say("truncated")));
  }

  token({ text, special }, number = "") {
    return element("li", [literal("bdi", text), element("small", number)],
      { className: special ? "token special" : "token" });
  }

  drawAttention() {
    const weights = this.shown.attention[this.shownKind];
    const counted = (list) => list.map((_, index) => [index, String(index + 1)]);
    const mean = ["mean", this.say("mean")];
    options(this.layers, [...counted(weights), mean], this.layer ?? weights.length - 1);
    options(this.headChoice, [mean, ...counted(weights[0])], this.head);
    this.kinds.setAttribute("aria-label", this.say("kind"));
    this.kinds.querySelector(`[value=${this.kind}]`).checked = true;
    this.help.textContent = this.say(`${this.shownKind}Help`);
    this.weights = chosenWeights(weights, this.layers.value, this.headChoice.value);
    [this.queryTokens, this.keyTokens] = this.labels();
    this.drawRows();
    this.drawHeatmap();
    this.drawHeads();
    // While more was asked for, another translation or kind was still there to be pointed at.
    const { query, key } = this.point ?? {};
    const isThere = (query ?? 0) < this.queryTokens.length && (key ?? 0) < this.keyTokens.length;
    this.pointAt(isThere ? this.point : null);
  }

  /* The tokens that look, and those that are looked at. */
  labels() {
    const source = marked(this.shown.source_tokens, true);
    const target = marked(this.shown.target_tokens, !this.shown.truncated);
    const read = [{ text: "<s>", special: true }, ...target.slice(0, -1)];
    return {
      cross: [target, source], encoder: [source, source], decoder: [target, read],
    }[this.shownKind];
  }

  isMasked(query, key) {
    return this.shownKind === "decoder" && key > query;
  }

  drawRows() {
    for (const [row, name, label, tokens] of [
      [this.keys, this.keysName, "Keys", this.keyTokens],
      [this.queries, this.queriesName, "Queries", this.queryTokens],
    ]) {
      name.textContent = this.say(`${this.shownKind}${label}`);
      row.setAttribute("aria-label", name.textContent);
      row.replaceChildren(...tokens.map((token, index) => {
        const item = this.token(token);
        item.tabIndex = index ? -1 : 0;
        item.setAttribute("role", "option");
        return item;
      }));
    }
  }

  drawHeatmap() {
    this.heatmap.setAttribute("aria-label", this.say("grid"));
    const columns = this.keyTokens.map((token) => header("col", token));
    const top = element("tr", [element("td"), ...columns]);
    const lines = this.weights.map((row, query) => element("tr", [
      header("row", this.queryTokens[query]),
      ...row.map((weight, key) => {
        const cell = element("td", "", { tabIndex: query || key ? -1 : 0 });
        if (this.isMasked(query, key)) cell.classList.add("masked");
        else paint(cell, weight);
        cell.setAttribute("aria-label", this.isMasked(query, key) ? "–" : this.percent(weight));
        return cell;
      }),
    ]));
    this.heatmap.replaceChildren(element("thead", [top]), element("tbody", lines));
    this.drawNumbers();
  }

  drawNumbers() {
    this.weights.forEach((row, query) => row.forEach((weight, key) => {
      const shown = this.numbers.checked && weight >= SHOWN;
      this.cell(query, key).textContent = shown ? String(Math.round(100 * weight)) : "";
    }));
  }

  cell(query, key) {
    return this.heatmap.tBodies[0].rows[query].cells[key + 1];
  }

  drawHeads() {
    const { entropy, alignment } = this.shown.heads[this.shownKind];
    const orders = alignment ? ["byLayer", "byAlignment", "byEntropy"] : ["byLayer", "byEntropy"];
    this.root.querySelector(".alignment").hidden = !alignment;
    options(this.orders, orders.map((order) => [order, this.say(order)]), this.order);
    const heads = entropy.flatMap((row, layer) => row.map((_, head) => ({ layer, head })));
    const worth = {
      byLayer: () => 0,
      byEntropy: ({ layer, head }) => entropy[layer][head],
      byAlignment: ({ layer, head }) => -alignment[layer][head],
    }[this.orders.value];
    heads.sort((one, other) => worth(one) - worth(other));
    this.heads.replaceChildren(...heads.map(({ layer, head }) => {
      const of = (scores) => ({ value: scores[layer][head].toFixed(2) });
      const about = [this.say("entropy", of(entropy))];
      if (alignment) about.push(this.say("alignment", of(alignment)));
      const name = this.say("headName", { layer: layer + 1, head: head + 1 });
      const button = element("button", [
        this.thumbnail(this.shown.attention[this.shownKind][layer][head]),
        element("span", name),
        ...about.map((each) => element("span", each, { className: "muted" })),
      ], { type: "button" });
      Object.assign(button.dataset, { layer, head });
      return element("li", [button]);
    }));
    this.markHead();
  }

  markHead() {
    const buttons = [...this.heads.querySelectorAll("button")];
    const chosen = buttons.find(({ dataset: { layer, head } }) =>
      layer === this.layers.value && head === this.headChoice.value);
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button === chosen));
      button.tabIndex = button === (chosen ?? buttons[0]) ? 0 : -1;
    }
  }

  /* A pixel for each weight, between the two ends of the ramp. */
  thumbnail(weights) {
    const canvas = element("canvas", "", { width: weights[0].length, height: weights.length });
    canvas.setAttribute("aria-hidden", "true");
    const draw = canvas.getContext("2d");
    const style = getComputedStyle(this.root);
    draw.fillStyle = style.getPropertyValue("--cold");
    draw.fillRect(0, 0, canvas.width, canvas.height);
    draw.fillStyle = style.getPropertyValue("--hot");
    weights.forEach((row, query) => row.forEach((weight, key) => {
      draw.globalAlpha = weight;
      draw.fillRect(key, query, 1, 1);
    }));
    return canvas;
  }

  /* ---- What is pointed at: a token of either row, or a cell ---- */

  pointAt(point) {
    const { query = null, key = null } = point ?? {};
    this.point = point;
    const weight = (q, k) => (this.isMasked(q, k) ? null : this.weights[q][k]);
    [...this.queries.children].forEach((item, index) => this.mark(item, index === query,
      query === null && key !== null ? weight(index, key) : null));
    [...this.keys.children].forEach((item, index) => this.mark(item, index === key,
      query !== null ? weight(query, index) : null));
    [...this.heatmap.tHead.rows[0].cells].forEach((cell, index) =>
      cell.classList.toggle("here", index === key + 1 && key !== null));
    [...this.heatmap.tBodies[0].rows].forEach((line, index) =>
      line.cells[0].classList.toggle("here", index === query));
    this.readout.textContent = this.sentence(query, key);
    this.drawLines();
  }

  mark(item, selected, weight) {
    item.setAttribute("aria-selected", String(selected));
    item.querySelector("small").textContent =
      weight !== null && weight >= SHOWN ? this.percent(weight) : "";
    if (weight === null) clearPaint(item);
    else paint(item, weight);
  }

  sentence(query, key) {
    const name = (tokens, index) => tokens[index]?.text;
    const most = (weights, tokens) => weights
      .map((weight, index) => ({ weight, index }))
      .sort((one, other) => other.weight - one.weight)
      .slice(0, NAMED).filter(({ weight }, place) => !place || weight >= SHOWN)
      .map(({ weight, index }) => this.say("named",
        { token: name(tokens, index), percent: this.percent(weight) })).join(this.say("comma"));
    if (query === null && key === null) return this.say("hint");
    const values = { query: name(this.queryTokens, query), key: name(this.keyTokens, key) };
    if (key === null) {
      const tokens = most(this.weights[query], this.keyTokens);
      return this.say(`${this.shownKind}Query`, { ...values, tokens });
    }
    if (query === null) {
      const tokens = most(this.column(key), this.queryTokens);
      return this.say(`${this.shownKind}Key`, { ...values, tokens });
    }
    if (this.isMasked(query, key)) return this.say("masked", values);
    const weight = this.percent(this.weights[query][key]);
    return this.say(`${this.shownKind}Cell`, { ...values, weight });
  }

  column(key) {
    return this.weights.map((row) => row[key]);
  }

  /* From the token pointed at to each that got a share, the broader and darker the more. */
  drawLines() {
    const { query = null, key = null } = this.point ?? {};
    const place = this.flow.getBoundingClientRect();
    const anchor = (item, edge) => {
      const box = item.getBoundingClientRect();
      return [(box.left + box.right) / 2 - place.left, box[edge] - place.top];
    };
    const pairs = this.weights.flatMap((row, q) => row.map((weight, k) => ({ q, k, weight })))
      .filter(({ q, k, weight }) => weight >= SHOWN
        && (query !== null ? q === query : k === key && key !== null));
    this.svg.replaceChildren(...pairs.map(({ q, k, weight }) => {
      const [fromX, fromY] = anchor(this.queries.children[q], "top");
      const [toX, toY] = anchor(this.keys.children[k], "bottom");
      const middle = (fromY + toY) / 2;
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d",
        `M${fromX} ${fromY} C${fromX} ${middle} ${toX} ${middle} ${toX} ${toY}`);
      path.setAttribute("stroke-width", String(1 + 5 * weight));
      path.setAttribute("stroke-opacity", String(0.25 + 0.75 * weight));
      return path;
    }));
  }

  /* ---- What the reader does ---- */

  listen() {
    this.kinds.addEventListener("change", (event) => {
      this.kind = event.target.value;
      this.point = null;
      if (this.shown.attention[this.kind]) this.drawAttention();
      else this.more();
    });
    this.layers.addEventListener("change", () => {
      this.layer = this.layers.value;
      this.drawAttention();
    });
    this.headChoice.addEventListener("change", () => {
      this.head = this.headChoice.value;
      this.drawAttention();
    });
    this.orders.addEventListener("change", () => {
      this.order = this.orders.value;
      this.drawHeads();
    });
    this.numbers.addEventListener("change", () => this.drawNumbers());
    for (const each of [this.keys, this.queries, this.heatmap, this.heads]) keepOneStop(each);
    this.listenToHeads();
    this.listenToRow(this.queries, (query) => ({ query, key: null }));
    this.listenToRow(this.keys, (key) => ({ query: null, key }));
    this.listenToHeatmap();
    new ResizeObserver(() => this.data?.attention && this.drawLines()).observe(this.flow);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change",
      () => this.data?.attention && this.drawHeads());
  }

  listenToHeads() {
    this.heads.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      ({ layer: this.layer, head: this.head } = button.dataset);
      this.drawAttention();
      this.heads.querySelector("[aria-pressed=true]").focus();
    });
    this.heads.addEventListener("keydown", (event) => {
      const buttons = [...this.heads.querySelectorAll("button")];
      this.step(event, buttons, { ArrowUp: -1, ArrowDown: 1 });
    });
  }

  /* Move the focus by an arrow key, Home or End within `places`. */
  step(event, places, more = {}) {
    const from = places.indexOf(event.target);
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity, ...more };
    const step = steps[event.key];
    if (step === undefined || from < 0) return;
    event.preventDefault();
    focusOn(places, from + step);
  }

  listenToRow(row, pointOf) {
    const point = (event) => {
      const item = event.target.closest("[role=option]");
      if (item) this.pointAt(pointOf([...row.children].indexOf(item)));
    };
    row.addEventListener("pointerover", point);
    row.addEventListener("focusin", point);
    row.addEventListener("keydown", (event) => {
      this.step(event, [...row.children]);
      if (event.key === "ArrowUp" || event.key === "ArrowDown") this.follow(event, row);
    });
  }

  /* Go to the token of the other row that is bound most strongly to this one. */
  follow(event, row) {
    event.preventDefault();
    const index = [...row.children].indexOf(event.target);
    const weights = row === this.queries ? this.weights[index] : this.column(index);
    const other = [...(row === this.queries ? this.keys : this.queries).children];
    focusOn(other, weights.indexOf(Math.max(...weights)));
  }

  listenToHeatmap() {
    const point = (event) => {
      const cell = event.target.closest("tbody td");
      if (!cell) return;
      this.pointAt({ query: cell.parentElement.sectionRowIndex, key: cell.cellIndex - 1 });
    };
    this.heatmap.addEventListener("pointerover", point);
    this.heatmap.addEventListener("focusin", point);
    this.heatmap.addEventListener("keydown", (event) => {
      const cell = event.target.closest("tbody td");
      if (!cell) return;
      const row = cell.parentElement;
      this.step(event, [...row.cells].slice(1));
      const lines = [...this.heatmap.tBodies[0].rows];
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      focusOn(lines.map((line) => line.cells[cell.cellIndex]), row.sectionRowIndex + step);
    });
  }
}
