// Pointers and the wheel on the map: drag, pinch, wheel, click and hover.

//: Pixels that a pointer may move during a click.
const TOLERANCE = 4;

const middleOf = (places) => [0, 1].map((axis) => places.reduce((sum, place) => sum + place[axis], 0) / places.length);
const apart = ([[x, y], other]) => (other ? Math.hypot(x - other[0], y - other[1]) : 1);

/**
 * Listen on an element.
 * `turn(shift, factor, place)`: move by pixels and zoom around a pixel; `hover(place)`: the pointer
 * is at a pixel, or has left (null); `click(place)`.
 */
export function listen(element, { turn, hover, click }) {
  const pointers = new Map();
  let start = null; // where a pointer went down, until it has moved

  const inside = ({ clientX, clientY }) => {
    const box = element.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  };

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, inside(event));
    start = pointers.size === 1 ? inside(event) : null;
  });
  element.addEventListener("pointermove", (event) => {
    const place = inside(event);
    if (!pointers.has(event.pointerId)) return hover(place);
    if (start && apart([start, place]) < TOLERANCE) return;
    start = null;
    const before = [...pointers.values()];
    pointers.set(event.pointerId, place);
    const after = [...pointers.values()];
    const [[x0, y0], [x1, y1]] = [middleOf(before), middleOf(after)];
    turn([x1 - x0, y1 - y0], apart(before) / Math.max(1, apart(after)), [x0, y0]);
  });
  element.addEventListener("pointerup", (event) => {
    if (pointers.delete(event.pointerId) && start) click(start);
    start = null;
  });
  element.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  element.addEventListener("pointerleave", () => pointers.size || hover(null));
  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 20 : 1;
      turn([0, 0], Math.exp(Math.max(-200, Math.min(200, event.deltaY * lines)) / 400), inside(event));
    },
    { passive: false },
  );
}
