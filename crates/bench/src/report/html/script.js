'use strict';
(() => {
  const tip = document.getElementById('tip');
  document.addEventListener('pointermove', (event) => {
    const at = event.target instanceof Element ? event.target.closest('[data-tip]') : null;
    if (!at) { tip.style.opacity = '0'; return; }
    tip.textContent = at.getAttribute('data-tip');
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - width - 8);
    const above = event.clientY - height - 12;
    tip.style.left = Math.max(8, left) + 'px';
    tip.style.top = (above > 8 ? above : event.clientY + 18) + 'px';
    tip.style.opacity = '1';
  });
  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  const button = document.getElementById('theme');
  button.hidden = false;
  button.addEventListener('click', () => { root.dataset.theme = dark() ? 'light' : 'dark'; });
})();
