"""Cases of arithmetic, activations, comparisons, reductions, matrix products."""

import paddle

from cases import case, floats

case("relu/open", lambda x: paddle.nn.functional.relu(x), {"x": ([None, 3], [floats(2, 3), floats(5, 3)])})
case("matmul/transposed", lambda x, y: paddle.matmul(x, y, transpose_y=True), {"x": floats(2, 3), "y": floats(4, 3)})
