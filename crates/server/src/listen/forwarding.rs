//! Streams that wrap another stream, and change only some of its methods.

/// Methods of `AsyncRead` and `AsyncWrite` that only call the same method of the field `stream`. Where it is used, `io`, `Pin`,
/// `Context` and `Poll` must be in scope.
macro_rules! pass_on {
    ($($method:ident($($argument:ident: $kind:ty),*) -> $output:ty;)*) => {
        $(fn $method(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            $($argument: $kind),*
        ) -> Poll<io::Result<$output>> {
            Pin::new(&mut self.stream).$method(context, $($argument),*)
        })*
    };
}

pub(super) use pass_on;
