//! A real browser opens the page. Its console stays empty, every plot is drawn where it can be seen, and the tooltip
//! and the theme button work. Skipped with a message if there is no Chromium.
use crate::support::full_run;
use duramen_bench::report::html;
use std::path::Path;
use std::process::Command;

/// Appended to the page: inspects the drawn plots and writes the result where --dump-dom shows it.
const PROBE: &str = "<script>
addEventListener('load', () => {
  const out = [];
  const plots = [...document.querySelectorAll('svg.plot')];
  out.push('plots ' + plots.length);
  for (const plot of plots) {
    const box = plot.getBoundingClientRect();
    const marks = [...plot.querySelectorAll('.mark, .bar, rect[fill], path.line')];
    const seen = marks.filter((mark) => {
      const at = mark.getBoundingClientRect(), style = getComputedStyle(mark);
      return at.width + at.height > 0 && style.visibility === 'visible' && (style.fill !== 'none' || style.stroke !== 'none');
    });
    const inside = marks.every((mark) => {
      const at = mark.getBoundingClientRect();
      return at.left >= box.left - 2 && at.right <= box.right + 2 && at.top >= box.top - 2 && at.bottom <= box.bottom + 2;
    });
    if (box.width < 200 || box.height < 30 || seen.length === 0 || !inside) out.push('bad plot: ' + plot.getAttribute('aria-label'));
  }
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  if (wide) out.push('the page is wider than the window');
  const mark = document.querySelector('[data-tip]');
  mark.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: 50, clientY: 50 }));
  if (document.getElementById('tip').textContent !== mark.dataset.tip) out.push('no tooltip');
  const before = getComputedStyle(document.body).backgroundColor;
  document.getElementById('theme').click();
  if (getComputedStyle(document.body).backgroundColor === before) out.push('the theme did not change');
  const probe = document.createElement('pre');
  probe.id = 'probe';
  probe.textContent = out.join('|');
  document.body.append(probe);
});
</script></body>";

fn chromium(page: &Path, profile: &Path, window: &str) -> Option<(String, String)> {
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())?;
    let output = Command::new(found)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--window-size={window}"))
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    Some((
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

#[test]
fn a_browser_shows_every_plot_without_an_error() {
    let directory = tempfile::tempdir().unwrap();
    for (name, runs) in [("one", vec![full_run(1.0)]), ("two", vec![full_run(1.0), full_run(1.3)])] {
        let page = html::page(&runs);
        let plots = page.matches("<svg class=\"plot\"").count();
        let path = directory.path().join(format!("{name}.html"));
        std::fs::write(&path, page.replace("</body>", PROBE)).unwrap();
        for window in ["1400,1000", "480,900"] {
            let Some((dom, log)) = chromium(&path, &directory.path().join("profile"), window) else {
                eprintln!("left out: no chromium here");
                return;
            };
            let probe = dom.split("<pre id=\"probe\">").nth(1).unwrap_or_else(|| panic!("no probe:\n{log}"));
            assert_eq!(probe.split('<').next().unwrap(), format!("plots {plots}"), "{name} at {window}");
            let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
            assert!(console.is_empty(), "{console:#?}");
        }
    }
}
