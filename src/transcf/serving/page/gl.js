// Points by WebGL2: one draw call for all of them, however many there are.

const VERTEX = `#version 300 es
layout(location = 0) in vec2 place;
layout(location = 1) in float size;
layout(location = 2) in float color;
uniform vec4 view;  // scale and offset from places to clip space
uniform float zoom;
uniform vec4 palette[12];
out vec4 tint;
out float width;
void main() {
  gl_Position = vec4(place * view.xy + view.zw, 0.0, 1.0);
  tint = palette[int(color)];
  width = size * zoom;
  gl_PointSize = width + 1.0;
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 tint;
in float width;
out vec4 shown;
void main() {
  float away = length(gl_PointCoord - 0.5) * (width + 1.0);
  float alpha = tint.a * clamp(width * 0.5 - away + 0.5, 0.0, 1.0);
  if (alpha == 0.0) discard;
  shown = vec4(tint.rgb * alpha, alpha);
}`;

function compile(gl, kind, source) {
  const shader = gl.createShader(kind);
  gl.shaderSource(shader, source);
  gl.compileShader(shader);
  return shader;
}

function link(gl) {
  const program = gl.createProgram();
  gl.attachShader(program, compile(gl, gl.VERTEX_SHADER, VERTEX));
  gl.attachShader(program, compile(gl, gl.FRAGMENT_SHADER, FRAGMENT));
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) ?? "no program");
  return program;
}

/**
 * A renderer of points on a canvas; null where the browser has no WebGL2.
 * `onRestored` is called after the browser gave a lost context back: points must be set again.
 */
export function pointRenderer(canvas, onRestored) {
  const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true });
  if (!gl) return null;
  let program, uniforms, buffers;
  let count = 0;

  function setUp() {
    program = link(gl);
    gl.useProgram(program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    uniforms = Object.fromEntries(["view", "zoom", "palette"].map((name) => [name, gl.getUniformLocation(program, name)]));
    buffers = [2, 1, 1].map((width, place) => {
      const buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, width, place === 2 ? gl.UNSIGNED_BYTE : gl.FLOAT, false, 0, 0);
      return buffer;
    });
  }
  const store = (place, values) => {
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers[place]);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
  };
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => {
    setUp();
    onRestored();
  });
  setUp();

  return {
    /** Places (x and y in turns) and diameters in pixels; the last ones are drawn on top. */
    setPoints(places, sizes) {
      count = sizes.length;
      store(0, places);
      store(1, sizes);
    },
    /** The number of a colour for each point. */
    setColors: (colors) => store(2, colors),
    /** Up to 12 colours, [red, green, blue, alpha] from 0 to 1 each. */
    setPalette(colors) {
      gl.uniform4fv(uniforms.palette, colors.flat());
    },
    /** Draw the part of the plane around a middle; `units` are the lengths of a pixel along both axes. */
    draw({ middle: [x, y], units, width, height, zoom }) {
      const ratio = Math.min(2, devicePixelRatio);
      const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
      const [across, upward] = [2 / (units[0] * width), 2 / (units[1] * height)];
      gl.viewport(0, 0, wide, high);
      gl.clear(gl.COLOR_BUFFER_BIT);
      gl.uniform4f(uniforms.view, across, upward, -x * across, -y * upward);
      gl.uniform1f(uniforms.zoom, zoom * ratio);
      gl.drawArrays(gl.POINTS, 0, count);
    },
    /** Wait until everything is drawn. */
    finish() {
      gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    },
  };
}
