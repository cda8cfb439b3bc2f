//! Several sources, one over the other: a later one adds to what the earlier ones have, and replaces it.

use crate::error::{Losses, Result};
use crate::pipe::{Outlet, Source};
use crate::whiteout::Whiteouts;

/// Sources in order, the lowest first.
pub struct Layers<'a> {
    sources: Vec<Box<dyn Source + 'a>>,
    whiteouts: Whiteouts,
}

impl<'a> Layers<'a> {
    /// The sources, the lowest first. `whiteouts` says what whiteouts mean in sources that do not know it themselves.
    pub fn new(sources: Vec<Box<dyn Source + 'a>>, whiteouts: Whiteouts) -> Self {
        Self { sources, whiteouts }
    }
}

impl Source for Layers<'_> {
    fn send(&mut self, out: &mut Outlet) -> Result<()> {
        for source in &mut self.sources {
            out.begin_layer(self.whiteouts, source.over_links())?;
            source.send(out)?;
        }
        Ok(())
    }

    fn losses(&self) -> Losses {
        self.sources.iter().fold(Losses::default(), |losses, source| losses.and(source.losses()))
    }
}
