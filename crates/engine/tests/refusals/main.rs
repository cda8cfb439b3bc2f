//! Operations that are refused change nothing and harm nothing else: the mount lives on, and everything else stays
//! durable. And the attributes of new inodes, which must be those that the kernel gives them.

mod acl;
mod attr_bit;
mod attr_fork;
mod attr_leaf;
mod attr_plans;
mod bad_block;
mod durable;
mod inherit;
mod injected;
mod log_space;
mod parents;
mod projects;
mod shapes;
#[path = "../stress/mod.rs"]
mod stress;
mod times;
mod types;
mod upgrade;
mod whiteout;
