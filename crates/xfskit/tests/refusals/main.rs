//! What is refused changes nothing and harms nothing else: the mount lives on, and everything else stays durable. And
//! what new inodes are given, which is to be what the kernel gives them.

mod acl;
mod attr_bit;
mod attr_fork;
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
