const HEIGHT = 120
const STEP = 10
const GAP = 2

export interface Bar {
  /** What is read when the bar is pointed at. */
  label: string
  value: number
}

/**
 * Bars drawn on the server, stretched to the width there is; `ticks` stand below at equal distances, or (`isByEnds`) each where its
 * bar ends. Its numbers stand in a table
 * beside it, for those who cannot see it: the picture is hidden from screen readers but for its `name`.
 */
export function BarChart(props: { name: string; bars: readonly Bar[]; ticks: readonly string[]; isByEnds?: boolean }) {
  const { bars } = props
  const top = niceTop(Math.max(0, ...bars.map(({ value }) => value)))
  const width = bars.length * STEP
  return (
    <figure class="chart">
      <p class="chart-top" aria-hidden="true">
        {top.toLocaleString('en')}
      </p>
      <svg
        viewBox={`0 0 ${width} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={props.name}
        class={bars.length > 60 ? 'chart-bars many' : 'chart-bars'}
      >
        <line class="chart-line" x1="0" x2={width} y1="0.5" y2="0.5" />
        <line class="chart-line" x1="0" x2={width} y1={HEIGHT / 2} y2={HEIGHT / 2} />
        {bars.map(({ label, value }, index) => {
          const height = value === 0 ? 0 : Math.max(2, Math.round((value / top) * HEIGHT))
          return (
            <g class="chart-bar">
              <rect class="chart-hit" x={index * STEP} y="0" width={STEP} height={HEIGHT} />
              <rect x={index * STEP + GAP / 2} y={HEIGHT - height} width={STEP - GAP} height={height} />
              <title>{label}</title>
            </g>
          )
        })}
        <line class="chart-base" x1="0" x2={width} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
      </svg>
      <p class={props.isByEnds ? 'chart-ticks ends' : 'chart-ticks'} aria-hidden="true">
        {props.ticks.map((tick) => (
          <span>{tick}</span>
        ))}
      </p>
    </figure>
  )
}

/** The round number that the axis ends at. */
export function niceTop(max: number): number {
  if (max <= 1) return 1
  const power = 10 ** Math.floor(Math.log10(max))
  return Math.ceil(([1, 1.5, 2, 3, 4, 5, 6, 8].find((factor) => factor * power >= max) ?? 10) * power)
}
