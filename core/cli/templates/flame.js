const data = JSON.parse(document.getElementById('flame-data').textContent);
/** A link to the listing of a function, if the page has it. */
function listing({ section }) {
  if (section === null) return undefined;
  const link = document.createElement('a');
  link.href = `#p${section}`;
  link.textContent = 'listing';
  return link;
}
const open = ({ section }) => { if (section !== null) location.hash = `p${section}`; };
new FlameGraph(document.getElementById('flame-graph'), data, { link: listing, open });
