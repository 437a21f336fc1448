#include "grid_change.hpp"

namespace heddle {

GridChange::GridChange(LayerSpec const& spec, Side side)
    : parallel_(spec.parallel), side_(side), tensor_ops_(spec.kernels.select<TensorOps>({spec.dtype})) {}

Tensor GridChange::move(LayerContext const& context, Tensor const& stream, Grid from) const {
  if (!context.pack.encoder) {
    return stream;
  }
  EncoderPack const& encoder = *context.pack.encoder;
  Grid const to = from == Grid::encoder ? Grid::decoder : Grid::encoder;
  RowExchange const& exchange = from == Grid::encoder ? encoder.to_decoder : encoder.from_decoder;
  LayerContext before = context.in_grid(parallel_, from);
  LayerContext const after = context.in_grid(parallel_, to);
  std::int64_t const columns = stream.dim(1);
  IndexRange const mine = share(exchange.placed.size(), after.row_split.rank, after.row_split.ranks);
  Tensor const output = context.arena.allocate(stream.dtype(), {mine.count(), columns});
  ArenaScope const scope(context.arena);
  Tensor const whole = TensorRegion(parallel_.of(from), side_).enter(before, stream);
  Tensor const sent = context.arena.allocate(stream.dtype(), {exchange.sent.size(), columns});
  tensor_ops_->gather_rows(context.execution, whole, exchange.sent, sent);
  Tensor received = sent;
  if (Communicator const& ranks = parallel_.of(from).context; ranks.size() > 1) {
    received = context.arena.allocate(stream.dtype(), {exchange.placed.size(), columns});
    ranks.after(context.execution).all_to_all_rows(sent, exchange.send_rows, received, exchange.receive_rows);
  }
  tensor_ops_->gather_rows(context.execution, received, exchange.placed.rows(mine.begin, mine.count()), output);
  return output;
}

}  // namespace heddle
