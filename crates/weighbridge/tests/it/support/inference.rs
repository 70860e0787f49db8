//! Inference of the small trained golden networks from tensors by name: a check of the orientation and order of matrices, for any
//! format of the tensors.

use serde_json::Value as Json;

/// A tensor of at most two dimensions. Element (i, j) is in row i and column j; a vector is one
/// column, a scalar one element.
pub(crate) struct Matrix {
    /// The dimensions as the format has them.
    pub(crate) dims: Vec<u64>,
    /// Element (i, j).
    pub(crate) get: Box<dyn Fn(usize, usize) -> f32>,
}

impl Matrix {
    fn rows(&self) -> usize {
        self.dims.first().map_or(1, |&d| usize::try_from(d).unwrap())
    }

    fn columns(&self) -> usize {
        assert!(self.dims.len() <= 2, "{:?}", self.dims);
        self.dims.get(1).map_or(1, |&d| usize::try_from(d).unwrap())
    }

    fn column(&self, j: usize) -> Vec<f64> {
        assert!(j < self.columns());
        (0..self.rows()).map(|i| f64::from((self.get)(i, j))).collect()
    }

    /// `self . x + b`
    fn affine(&self, x: &[f64], b: &Self) -> Vec<f64> {
        assert_eq!((self.columns(), self.rows()), (x.len(), b.rows()));
        let row = |i: usize| -> f64 { (0..x.len()).map(|j| f64::from((self.get)(i, j)) * x[j]).sum() };
        b.column(0).iter().enumerate().map(|(i, b)| row(i) + b).collect()
    }
}

fn tanh(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(f64::tanh).collect()
}

/// Computes every sample of the `inference` of a golden file's `json` from tensors by dotted name,
/// and compares it with what the original computed. Returns how many values were compared.
pub(crate) fn check(json: &Json, tensor: impl Fn(&str) -> Matrix) -> usize {
    let file = json["file"].as_str().unwrap();
    let samples = json["inference"]["samples"].as_array().unwrap();
    let inputs: Vec<Vec<f64>> = samples.iter().map(|s| floats(&s["input_bits"])).collect();
    let outputs = match file.split('_').nth(1).unwrap() {
        "xor" => inputs.iter().map(|x| xor(x, &tensor)).collect(),
        "mlp" => inputs.iter().map(|x| mlp(x, &tensor)).collect(),
        "lstm" => lstm(&inputs, &tensor),
        other => panic!("no such network: {other}"),
    };
    let mut compared = 0;
    for (sample, output) in samples.iter().zip(&outputs) {
        let expected = floats(&sample["output_bits"]);
        assert_eq!(output.len(), expected.len(), "{file}");
        for (found, expected) in output.iter().zip(&expected) {
            let tolerance = 1e-5 * expected.abs().max(1.0);
            assert!((found - expected).abs() <= tolerance, "{file}: {found} is not {expected}");
            compared += 1;
        }
    }
    compared
}

fn floats(bits: &Json) -> Vec<f64> {
    let float = |text: &str| f64::from(f32::from_bits(u32::from_str_radix(text, 16).unwrap()));
    bits.as_str().unwrap().split_whitespace().map(float).collect()
}

/// y = w2 . tanh(w1 . x + b1) + b2
fn xor(x: &[f64], tensor: &impl Fn(&str) -> Matrix) -> Vec<f64> {
    let hidden = tanh(tensor("w1").affine(x, &tensor("b1")));
    tensor("w2").affine(&hidden, &tensor("b2"))
}

/// Three layers w . x + b with tanh between them.
fn mlp(x: &[f64], tensor: &impl Fn(&str) -> Matrix) -> Vec<f64> {
    let h1 = tanh(tensor("fc1.w").affine(x, &tensor("fc1.b")));
    let h2 = tanh(tensor("fc2.w").affine(&h1, &tensor("fc2.b")));
    tensor("fc3.w").affine(&h2, &tensor("fc3.b"))
}

/// Characters one by one from the zero state; a character is a column of the embedding.
fn lstm(inputs: &[Vec<f64>], tensor: &impl Fn(&str) -> Matrix) -> Vec<Vec<f64>> {
    let (emb, w, b) = (tensor("emb"), tensor("lstm.w"), tensor("lstm.b"));
    let (wy, by) = (tensor("wy"), tensor("by"));
    let n = b.rows() / 4;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (mut h, mut c) = (vec![0.0; n], vec![0.0; n]);
    let mut logits = Vec::new();
    for input in inputs {
        let character =
            (0..emb.columns()).find(|&j| f64::from(u32::try_from(j).unwrap()) == input[0]).unwrap();
        let u = w.affine(&[emb.column(character), h.clone()].concat(), &b);
        for k in 0..n {
            let (i, f, o, j) = (u[k], u[n + k], u[2 * n + k], u[3 * n + k]);
            c[k] = sigmoid(i) * j.tanh() + sigmoid(f) * c[k];
            h[k] = sigmoid(o) * c[k].tanh();
        }
        logits.push(wy.affine(&h, &by));
    }
    logits
}
