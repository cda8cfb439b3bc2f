//! Paths that are kept during a walk, each as a name below another one: a tree with very deep folders has paths whose
//! lengths add up to the square of its depth, and their names do not.

/// A path in [`Paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathId(usize);

/// Paths of a walk that goes depth first. Each name costs memory once for every time that the walk enters it.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// The names, each with the place of the one before it in the path.
    names: Vec<(Option<usize>, Box<[u8]>)>,
    /// The places of the names of the path that was kept last.
    last: Vec<usize>,
}

impl Paths {
    /// Keeps a path.
    pub(crate) fn keep(&mut self, path: &[u8]) -> PathId {
        let mut names = path.split(|&byte| byte == b'/').peekable();
        let same = self.last.iter().take_while(|&&at| names.next_if(|name| *name == &*self.names[at].1).is_some());
        let same = same.count();
        self.last.truncate(same);
        for name in names {
            let place = self.names.len();
            self.names.push((self.last.last().copied(), name.into()));
            self.last.push(place);
        }
        // A path has at least one name, which may be empty.
        PathId(self.last.last().copied().unwrap_or_default())
    }

    /// A path that was kept.
    pub(crate) fn get(&self, PathId(mut at): PathId) -> Vec<u8> {
        let mut names = vec![&*self.names[at].1];
        while let Some(before) = self.names[at].0 {
            names.push(&*self.names[before].1);
            at = before;
        }
        names.reverse();
        names.join(&b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept_as_they_are() {
        let paths: [&[u8]; 11] =
            [b"", b"a", b"a/b/c", b"a/b/c", b"a/b", b"a//b", b"/", b"/a/", b"b/c", b"a/b/d\xff", b"a/b/d\xff/e"];
        let mut kept = Paths::default();
        let ids = paths.map(|path| kept.keep(path));
        assert_eq!(ids.map(|id| kept.get(id)), paths.map(<[u8]>::to_vec));
    }

    #[test]
    fn deep_paths_cost_their_names() {
        let (mut kept, mut path) = (Paths::default(), b"root".to_vec());
        for _ in 0..2000 {
            path.extend_from_slice(b"/name");
            kept.keep(&[&path, &b"/file"[..]].concat());
        }
        assert!(kept.names.len() <= 4100, "{}", kept.names.len());
    }
}
