//! The operator on a real control plane: etcd, kube-apiserver, scheduler, controller manager, and kwok for kubelets.
//!
//! One control plane serves all of these tests; each works in a namespace of its own, so that they can run side by side.

mod common;
mod life;
mod queues;
mod tenants;
mod writes;
