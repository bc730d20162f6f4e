from gradops_cy.kernels.convolution_v2 import *
