// Moving and zooming the map smoothly, however many points it has.
//
// While a gesture lasts, what is drawn is only shifted and scaled, which browsers do without
// asking the page; once it rests, the points are drawn anew where they belong.

//: Pixels that a pointer may tremble during a click.
const TREMBLE = 4;
//: Milliseconds without movement after which the points are drawn anew.
const REST = 160;

/**
 * Let pointers and wheel move an element's drawing.
 * `drawn`: ranges as they are drawn, [[x0, x1], [y0, y1]]; `look`: is told of ranges while they
 * change; `settle`: draws ranges.
 * Returns `isMoving`, whether a gesture goes on, and `wasMoved`, whether the last press was one
 * rather than a click.
 */
export function movable(element, { drawn, look, settle }) {
  const pointers = new Map();
  let wanted = null; // ranges that are looked at, while they are not drawn
  let start = null; // where a pointer went down, until it has moved
  let wasMoved = false;
  let timer = null;

  const size = () => [element.clientWidth, element.clientHeight];
  const current = () => wanted ?? drawn();

  function shift() {
    const [[[x0, x1], [y0, y1]], [[u0, u1], [v0, v1]], [width, height]] = [drawn(), current(), size()];
    const [across, upward] = [((x0 - u0) / (u1 - u0)) * width, ((v1 - y1) / (v1 - v0)) * height];
    const [wide, high] = [(x1 - x0) / (u1 - u0), (y1 - y0) / (v1 - v0)];
    const board = element.querySelector(".svg-container");
    board.style.transformOrigin = "0 0";
    board.style.transform = wanted ? `translate(${across}px, ${upward}px) scale(${wide}, ${high})` : "";
  }

  function go(ranges) {
    wanted = ranges;
    shift();
    look(ranges);
    clearTimeout(timer);
    timer = setTimeout(rest, REST);
  }

  async function rest() {
    const ranges = wanted;
    await settle(ranges);
    if (wanted === ranges) wanted = null;
    shift();
  }

  /** Shift by pixels, and zoom by a factor around a pixel. */
  function turn([right, down], factor = 1, [x, y] = [0, 0]) {
    const [[[x0, x1], [y0, y1]], [width, height]] = [current(), size()];
    const [unit, high] = [(x1 - x0) / width, (y1 - y0) / height];
    const [middle, level] = [x0 + x * unit, y1 - y * high];
    const [dx, dy] = [-right * unit, down * high];
    go([
      [middle + (x0 - middle) * factor + dx, middle + (x1 - middle) * factor + dx],
      [level + (y0 - level) * factor + dy, level + (y1 - level) * factor + dy],
    ]);
  }

  const inside = ({ clientX, clientY }) => {
    const box = element.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  };
  const middleOf = (places) => [0, 1].map((axis) => places.reduce((sum, place) => sum + place[axis], 0) / places.length);
  const apart = ([[x, y], other]) => (other ? Math.hypot(x - other[0], y - other[1]) : 1);

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, inside(event));
    start = pointers.size === 1 ? inside(event) : null;
    wasMoved = pointers.size > 1;
  });
  // plotly covers the page while a button is down, so the rest happens anywhere.
  addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return;
    const place = inside(event);
    if (start && apart([start, place]) < TREMBLE) return;
    start = null;
    wasMoved = true;
    const before = [...pointers.values()];
    pointers.set(event.pointerId, place);
    const after = [...pointers.values()];
    const [[x0, y0], [x1, y1]] = [middleOf(before), middleOf(after)];
    turn([x1 - x0, y1 - y0], apart(before) / Math.max(1, apart(after)), [x0, y0]);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    addEventListener(end, (event) => pointers.delete(event.pointerId));
  }
  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 20 : 1;
      turn([0, 0], Math.exp(Math.max(-200, Math.min(200, event.deltaY * lines)) / 400), inside(event));
    },
    { passive: false },
  );
  return { isMoving: () => wanted !== null, wasMoved: () => wasMoved };
}
